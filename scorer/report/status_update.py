"""The latest result of planning one unit, as a Gang's status and as an Event. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from msgspec import structs

from linkwise.planning.gang.crd import (
    GPUS_AS_PLANNED,
    GPUS_HEALTHY,
    PREPARED,
    Gang,
    GangStatus,
    Phase,
)
from linkwise.planning.gang.crd_plan import GangPlan, NodeGPUs
from linkwise.planning.gang.crd_status import status_of, with_problem
from linkwise.planning.gang.events import (
    EventMessage,
    EventReason,
    evicted,
    partial,
    placed,
    pod_waiting,
    unhealthy_message,
    waiting,
)
from linkwise.planning.gang.pod_info import PodInfo
from linkwise.planning.gang.unit import Unit
from linkwise.runtime.kube.event_recorder import Event, ObjectReference
from linkwise.runtime.process.clock import rfc3339
from scorer.report.gang_state import GangState

PENDING = frozenset({Phase.ASSEMBLING, Phase.WAITING})
"""Phases before GPUs are allocated."""
_WITHOUT_REASON = frozenset({Phase.PLACED, Phase.FINISHED})


class Evicted(NamedTuple):
    """Members of a gang that were evicted."""

    members: int = 0
    why: str = ""
    refusal: str = ""
    """Why the others could not be evicted, so that these go back; empty: all were."""


_NONE_EVICTED = Evicted()


@dataclass(frozen=True, slots=True)
class StatusUpdate:
    """The latest result for a gang, or for a pod without a gang."""

    unit: Unit
    phase: Phase
    members: tuple[int, int | None]
    """Present while some wait, else bound; and how many there must be, None: unknown."""
    plan: GangPlan | None = None
    reason: str = ""
    evicted: Evicted = _NONE_EVICTED
    refused: bool = False
    """The API server refused its plan."""

    @property
    def is_partial(self) -> bool:
        """Some members have GPUs, and the API server refused those of the others."""
        return self.unit.is_gang and self.refused and bool(self.unit.settled)

    def explains(self, phase: Phase) -> bool:
        """Return whether `reason` is why the gang is in a phase."""
        return self.phase is phase or (bool(self.evicted.members) and phase is not Phase.SUSPENDED)

    @property
    def waits(self) -> bool:
        """Pods of the unit wait, and `reason` is why."""
        return bool(self.unit.waiting) and bool(self.reason) and not self.evicted.members

    @property
    def message(self) -> EventMessage | None:
        """The message of its Event; None where those of its pods suffice."""
        gang, waits = self.unit.key.name, self.phase in PENDING or bool(self.reason)
        if not self.unit.is_gang:
            # While it waits, `MemberEvents` states the reason.
            return pod_waiting(self.reason) if waits and not self.waits else None
        if self.phase is Phase.PLACED and self.plan is not None:
            return placed(gang, self.plan, is_uniform=self.unit.is_uniform)
        if self.is_partial:
            return partial(gang, len(self.unit.settled), self.unit.needed, self.reason)
        if self.evicted.members and self.plan is not None:
            members, why, refusal = self.evicted
            return evicted(gang, members, len(self.plan.members) - members, why, refusal)
        return waiting(gang, self.reason) if waits else None

    def event(self, gang: Gang | None) -> Event | None:
        """Return the Event about the owner of the gang, else about a pod; None: no Event.

        Args:
            gang: Its Gang object; None: there is none.
        """
        message = self.message
        if message is None:
            return None
        return Event(
            self._about,
            message.reason,
            message.text,
            self._change(gang),
            is_warning=message.reason is not EventReason.PLACED,
        )

    @property
    def _about(self) -> ObjectReference:
        unit = self.unit
        namespace, owner = unit.key.namespace, unit.owner if unit.is_gang else None
        if owner:
            return ObjectReference(owner.api_version, owner.kind, owner.name, owner.uid, namespace)
        return about_pod((unit.waiting or unit.settled)[0])

    def _change(self, gang: Gang | None) -> str:
        """Identify the change of state. A new reason to wait is none, except the first refusal."""
        if self.is_partial:
            return f"{len(self.unit.settled)} of {self.unit.needed}"
        if self.plan is not None:
            count = self.evicted.members
            return f"{self.plan.id}, {count} evicted" if count else self.plan.id
        before = gang.spec.plan.id if gang and gang.spec.plan else "new"
        state = f"{self.phase}, refused," if self.refused else self.phase
        return f"{state} after {before}"


def desired_status(
    state: GangState, update: StatusUpdate | None, gang: Gang, before: GangStatus, now: str
) -> GangStatus:
    """Return the status that a Gang should have; equal to `before` where nothing changed.

    Args:
        state: The state of its pods.
        update: The latest update of this leader.
        gang: The Gang as it is.
        before: The status that was written last.
        now: RFC 3339.
    """
    phase, reason = state.phase, state.reason
    if phase in PENDING and update and update.phase in PENDING:
        # Only the planner knows what delays a gang whose members are all present.
        phase = update.phase
    if phase not in _WITHOUT_REASON:
        reason = _reason(phase, update, gang.status) or reason
    if reservation := _reservation(state):
        reason = f"{reason}; {reservation}" if reason else reservation
    status = status_of(
        phase, members=state.members, held=state.held, reason=reason, before=before, now=now
    )
    status = structs.replace(status, observed_generation=gang.metadata.generation)
    status = with_problem(status, GPUS_HEALTHY, state.unhealthy, before=before, now=now)
    status = with_problem(status, GPUS_AS_PLANNED, state.unplanned, before=before, now=now)
    return with_problem(status, PREPARED, state.unprepared, before=before, now=now)


def health_event(gang: Gang, unhealthy: str) -> Event:
    """Return the Event about the owner of a gang, else about its Gang, with unhealthy GPUs."""
    message = unhealthy_message(gang.key.name, unhealthy)
    return Event(about_gang(gang), message.reason, message.text, change=unhealthy)


def about_pod(pod: PodInfo) -> ObjectReference:
    """Return a reference to a pod."""
    return ObjectReference("v1", "Pod", pod.name, pod.uid, pod.namespace)


def about_gang(gang: Gang) -> ObjectReference:
    """Return a reference to the owner of a gang, else to its Gang."""
    meta, owner = gang.metadata, gang.owner
    if owner:
        return ObjectReference(owner.api_version, owner.kind, owner.name, owner.uid, meta.namespace)
    return ObjectReference(gang.api_version, gang.kind, meta.name, meta.uid, meta.namespace)


def _reservation(state: GangState) -> str:
    """Return what is reserved for a gang, for users; empty where nothing is."""
    if not state.held.reserved:
        return ""
    gpus = f"GPUs of {_nodes(state.held.reserved)} are reserved for"
    if state.reserved_until is None:
        return f"{gpus} its launcher, which is made when all workers are ready"
    return f"{gpus} its replacements until {rfc3339(state.reserved_until)}"


def _nodes(reserved: Sequence[NodeGPUs]) -> str:
    more = f" and {len(reserved) - 1} more" if len(reserved) > 1 else ""
    return f"{reserved[0].node}{more}"


def _reason(phase: Phase, update: StatusUpdate | None, last: GangStatus) -> str:
    """Return why a gang is in a phase, as this leader or an earlier one has reported."""
    if update is not None:
        return update.reason if update.explains(phase) else ""
    is_kept = phase is last.phase and phase in {*PENDING, Phase.COMMITTING}
    return last.reason if is_kept else ""
