"""GPUs that a unit is to have, and the units that are evicted for it. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from typing import TypeAlias

from cluster.gang import GangKey
from runtime.kube.objects import Key
from runtime.process.clock import YEAR_10000
from scorer.cache.cluster_state import ClusterState
from scorer.cache.reserved_gpus import Place, single_places
from scorer.gang.crd import planned_pod
from scorer.gang.plan_record import placement_of
from scorer.gang.pod_info import PodInfo
from scorer.gang.unit import Unit
from scorer.placement.result import Placement, Plan
from scorer.preemption.record import Record

VictimPods: TypeAlias = tuple[tuple[Key, str], ...]
"""Namespace and name of each pod of a unit, and its uid."""
_MARGIN = 30.0
"""Time beside the longest grace period for which GPUs are reserved [s]."""
_GONE = "", ""


@dataclass(frozen=True, slots=True)
class Nomination:
    """A unit for which others are evicted."""

    key: GangKey
    priority: int
    victims: tuple[VictimPods, ...]
    record: Record
    """What the next leader must know."""
    is_recorded: bool = False
    """It is written, so that the evictions may begin."""
    is_served: bool = False
    """The unit has its GPUs or is gone; only gangs of which a part was evicted are."""
    refusal: str = ""
    """Why a pod is not evicted yet."""

    @property
    def until(self) -> float:
        """Until then the GPUs are reserved [s since 1970]."""
        return max(0.0, min(self.record.until, YEAR_10000 - 1))

    def remaining(self, state: ClusterState) -> list[PodInfo]:
        """Return the pods that are still to be evicted."""
        left: list[PodInfo] = []
        for victim in self.victims:
            there = [pod for key, uid in victim if (pod := _staying(state, key, uid))]
            if not self.is_served or len(there) < len(victim):
                left += there
        return left

    def summary(self, state: ClusterState) -> str:
        """Return what happens, for users. It names nothing of another namespace."""
        pods, own = sum(map(len, self.victims)), self.key.namespace
        left = self.remaining(state)
        text = f"{pods} {_plural('pod', pods)} of {len(self.victims)} {_units(len(self.victims))}"
        text += " of lower priority" + self._names(own)
        until = datetime.fromtimestamp(self.until, UTC).strftime("%H:%M:%SZ")
        text += f" {'are' if pods > 1 else 'is'} evicted for it, until {until} at the latest"
        if left and self.refusal:
            text += f"; {len(left)} could not be evicted yet: {self.refusal}"
        return text

    def _names(self, namespace: str) -> str:
        own = [pods[0][0] for pods in self.victims if pods[0][0][0] == namespace]
        return f", such as that of pod {own[0][1]}," if own else ""


def new_nomination(
    unit: Unit, victims: Sequence[Sequence[PodInfo]], plan: Plan, now: float
) -> Nomination:
    """Return a nomination that is not recorded yet.

    Args:
        unit: The unit.
        victims: The pods to evict, by their unit.
        plan: Once they have ended.
        now: [s since 1970]
    """
    grace = max(pod.life.grace for pods in victims for pod in pods if pod.life)
    refs = tuple(tuple((pod.key, pod.uid) for pod in pods) for pods in victims)
    members = tuple(
        planned_pod(meta.name, meta.uid, each.node, each.gpus)
        for each in plan.placements
        for meta in (each.member.pod.metadata,)
    )
    uids = tuple(tuple(uid for _, uid in victim) for victim in refs)
    record = Record(unit.key, members, uids, now + grace + _MARGIN)
    return Nomination(unit.key, unit.priority, refs, record)


def places_of(plan: Plan) -> tuple[Place, ...]:
    """Return what is reserved for the members of a plan, each GPU by itself."""
    return tuple(chain.from_iterable(map(_places, plan.placements)))


def _places(placement: Placement) -> tuple[Place, ...]:
    return single_places(placement.node, placement.holding)


def restored(record: Record, unit: Unit | None, keys: Mapping[str, Key]) -> Nomination:
    """Return the nomination of an earlier leader.

    Args:
        record: As that leader has written it.
        unit: The unit; None: it does not wait any more.
        keys: Namespace and name of all pods, by uid.
    """
    victims = tuple(tuple((keys.get(uid, _GONE), uid) for uid in uids) for uids in record.victims)
    priority = unit.priority if unit else 0
    is_served = unit is None
    return Nomination(record.unit, priority, victims, record, is_recorded=True, is_served=is_served)


def restored_places(record: Record, unit: Unit, state: ClusterState) -> tuple[Place, ...]:
    """Return what an earlier leader reserved; without members and GPUs that are not there now."""
    planned = {member.uid: member for member in record.members}
    places: list[Place] = []
    for member in unit.members:
        place = planned.get(member.pod.metadata.uid)
        node = state.node(place.node) if place else None
        if place is None or node is None or any(i >= len(node.cards) for i in place.indices):
            continue
        places += _places(placement_of(place, member, node))
    return tuple(places)


def _staying(state: ClusterState, key: Key, uid: str) -> PodInfo | None:
    """Return a pod that has its GPUs, and is not being deleted."""
    pod = state.pod(key)
    return pod if pod and pod.uid == uid and pod.settled and pod.usage else None


def _units(count: int) -> str:
    return "gang or single pod" if count == 1 else "gangs and single pods"


def _plural(noun: str, count: int) -> str:
    return noun if count == 1 else f"{noun}s"
