"""GPUs that a unit is to have, and the units that are evicted for it. Pure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import chain
from typing import TypeAlias

from linkwise.cluster.allocations.gpus import Exact
from linkwise.cluster.gang import GangKey
from linkwise.planning.gang.crd_plan import planned_pod
from linkwise.planning.gang.plan_record import placement_of
from linkwise.planning.gang.pod_info import PodInfo
from linkwise.planning.gang.unit import Unit
from linkwise.planning.placement.result import Placement, Plan
from linkwise.planning.state.cluster_state import ClusterState
from linkwise.planning.state.reserved_gpus import Place, single_places
from linkwise.runtime.kube.objects import Key
from linkwise.runtime.process.clock import YEAR_10000, rfc3339
from linkwise.topology.machine import MAX_GPUS
from scorer.preemption.record import Record

VictimPods: TypeAlias = tuple[tuple[Key, str], ...]
"""Namespace and name of each pod of a unit, and its uid."""
MARGIN = 30.0
"""Time beside the longest grace period after which evicted pods should have ended [s]."""


class Failure(Enum):
    """Why a nomination has ended in vain."""

    VOID = "void"
    """Its plan does not hold any more."""
    UNRECORDED = "unrecorded"
    UNTOUCHED = "untouched"
    """Its time ended before a pod was evicted."""
    OVERDUE = "overdue"
    """The GPUs did not become free in time."""


@dataclass(frozen=True, slots=True)
class Nomination:
    """A unit for which others are evicted."""

    key: GangKey
    priority: int
    victims: Mapping[GangKey, VictimPods]
    """The pods that are evicted, by their unit."""
    record: Record
    """What the next leader must know."""
    is_asked: bool = False
    """The API server would let all victims be evicted, so that it may be recorded."""
    is_void: bool = False
    """Its plan does not hold any more: a GPU or node of it failed, or a victim was refused. What is
    still good is reserved until the evicted pods have ended, and other victims are searched."""
    refusal: str = ""
    """Why its pods could not be nominated for their nodes yet."""
    expected: float = math.inf
    """When the evicted pods should have ended [s since 1970]; later while one is still ending."""
    is_late: bool = False
    """They have not ended when they should have."""

    @property
    def until(self) -> float:
        """Until then the GPUs are reserved [s since 1970]."""
        return max(0.0, min(self.record.until, YEAR_10000 - 1))

    @property
    def due(self) -> float:
        """When it is to be looked at [s since 1970]."""
        return min(self.until, self.expected)

    def delayed(self, now: float) -> "Nomination":
        """Return the same while evicted pods are late to end; the time is in seconds since 1970."""
        return replace(self, expected=now + MARGIN, is_late=True)

    @property
    def pods(self) -> VictimPods:
        """The pods that are evicted."""
        return tuple(pod for pods in self.victims.values() for pod in pods)

    @property
    def uids(self) -> dict[GangKey, tuple[str, ...]]:
        """The uids of these pods, by their unit."""
        return {unit: tuple(uid for _, uid in pods) for unit, pods in self.victims.items()}

    def is_broken(self, places: Sequence[Place], state: ClusterState) -> bool:
        """Return whether GPUs of its plan failed, or are not there any more."""
        return not all(is_usable(place, state) for place in places)

    def summary(self, left: int, refusal: str, late: int = 0) -> str:
        """Return what happens, for users. It names nothing of another namespace.

        Args:
            left: The number of pods that are still to be evicted.
            refusal: Why; empty: nothing was refused.
            late: The number of pods that are ending for longer than their grace periods.
        """
        pods, units = len(self.pods), len(self.victims)
        text = f"{pods} {_plural('pod', pods)} of {units} {_units(units)}"
        text += f" of lower priority{self._names(self.key.namespace)}"
        until = rfc3339(self.until)
        text += f" {'are' if pods > 1 else 'is'} evicted for it, until {until} at the latest"
        if left and (refusal := self.refusal or refusal):
            text += f"; {left} could not be evicted yet: {refusal}"
        if late:
            verb = "is" if late == 1 else "are"
            text += f"; {late} of them {verb} still terminating, for longer than expected"
        return text

    def _names(self, namespace: str) -> str:
        own = [name for (of, name), _ in self.pods if of == namespace]
        return f", such as that of pod {own[0]}," if own else ""


def is_usable(place: Place, state: ClusterState) -> bool:
    """Return whether reserved GPUs are still there, and without a fault."""
    node, gpus = state.node(place.node), place.holding.gpus
    if node is None or not node.ready or node.unschedulable:
        return False
    if not isinstance(gpus, Exact):
        return True
    if any(share.i >= len(node.cards) for share in gpus.shares):
        return False
    cards = [(node.cards[share.i], share.uuid) for share in gpus.shares]
    return all(
        card.healthy and not card.cordoned and uuid in {None, card.uuid} for card, uuid in cards
    )


def new_nomination(
    unit: Unit,
    victims: Mapping[GangKey, Sequence[PodInfo]],
    plan: Plan,
    now: float,
    longest: float,
) -> Nomination:
    """Return a nomination that is not recorded yet.

    Args:
        unit: The unit.
        victims: The pods to evict, by their unit.
        plan: Once they have ended.
        now: [s since 1970]
        longest: For how long GPUs are reserved at most [s]. Grace periods may be years.
    """
    refs = {key: tuple((pod.key, pod.uid) for pod in pods) for key, pods in victims.items()}
    members = tuple(
        planned_pod(meta.name, meta.uid, each.node, each.gpus)
        for each in plan.placements
        for meta in (each.member.pod.metadata,)
    )
    uids = tuple(tuple(uid for _, uid in victim) for victim in refs.values())
    record = Record(unit.key, members, uids, now + longest)
    return Nomination(
        unit.key, unit.priority, refs, record, expected=now + _grace(victims) + MARGIN
    )


def _grace(victims: Mapping[GangKey, Sequence[PodInfo]]) -> int:
    """Return the longest grace period of pods to evict [s]."""
    lives = (pod.life for pods in victims.values() for pod in pods)
    return max((life.grace for life in lives if life), default=0)


def places_of(plan: Plan) -> tuple[Place, ...]:
    """Return what is reserved for the members of a plan, each GPU by itself."""
    return tuple(chain.from_iterable(map(_places, plan.placements)))


def _places(placement: Placement) -> tuple[Place, ...]:
    return single_places(placement.node, placement.holding)


def restored(
    record: Record, unit: Unit, victims: Mapping[GangKey, Sequence[PodInfo]], now: float
) -> Nomination:
    """Return the nomination of an earlier leader.

    Args:
        record: As that leader has written it.
        unit: The unit, which waits.
        victims: The pods that it evicts and that are still there, by their unit.
        now: [s since 1970]
    """
    refs = {key: tuple((pod.key, pod.uid) for pod in pods) for key, pods in victims.items()}
    expected = now + _grace(victims) + MARGIN
    return Nomination(record.unit, unit.priority, refs, record, is_asked=True, expected=expected)


def restored_places(record: Record, unit: Unit, state: ClusterState) -> tuple[Place, ...]:
    """Return what an earlier leader reserved; without members and GPUs that are not there now."""
    planned = {member.uid: member for member in record.members}
    places: list[Place] = []
    for member in unit.members:
        place = planned.get(member.pod.metadata.uid)
        node = state.node(place.node) if place else None
        if place is None or node is None or any(i >= len(node.cards) for i in place.indices):
            continue
        if len(place.gpus) > MAX_GPUS:
            continue
        places += _places(placement_of(place, member, node))
    return tuple(places)


def _units(count: int) -> str:
    return "gang or single pod" if count == 1 else "gangs and single pods"


def _plural(noun: str, count: int) -> str:
    return noun if count == 1 else f"{noun}s"
