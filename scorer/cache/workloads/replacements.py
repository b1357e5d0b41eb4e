"""Reserve the GPUs of members that a running gang lacks: lost ones, and a late launcher.

A reservation starts when the watch shows the loss, before anything else may be placed. It ends when
the gang is whole, shrinks or does not run, when its owner is suspended or has ended, or after
`gangs.replacementSeconds`. Then nothing is reserved for the gang until it is whole again.

The GPUs of a launcher that is made once all workers are ready are reserved as soon as the workers
are planned. Their reservation ends in the same way, but at no time: workers may take long to start.

Users decide when their pods are replaced. Time that is reserved in vain, or for longer than a gang
was whole before, is a debt of its namespace; nothing is reserved for a namespace with a large one.
A replacement within a few seconds is no debt, however often members are lost.

The planner itself takes members off a gang where a removal is refused in the middle
(`commit/removal`). Their places are kept whatever debt there is, and from pods of higher priorities
as well: else these would leave a part of the gang.
"""

from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass, replace
from math import inf

from linkwise.cluster.gang import GangKey
from linkwise.cluster.objects.time import seconds_of
from linkwise.planning.gang.crd import PLACED, Gang, object_key
from linkwise.planning.gang.crd_plan import GangPlan
from linkwise.planning.gang.lost_members import lost_members, reserved_holding, running_member
from linkwise.planning.gang.pod_info import PodInfo
from linkwise.planning.state.cluster_state import ClusterState
from linkwise.planning.state.reserved_gpus import Place
from linkwise.runtime.kube.objects import Key
from linkwise.workloads.state import OwnerState
from scorer.cache.workloads.gang_informer import GangInformer
from scorer.cache.workloads.workload_informer import WorkloadInformer

_DEBT_MAX = 60.0
"""With so much debt nothing more is reserved for a namespace [s]."""
_USUAL = 5.0
"""A replacement that takes no longer is no debt [s]: an owner takes less than a second."""
_RETURN = 60.0
"""The least time for which places are kept after a removal that was refused in the middle [s]."""
_NOBODY = 2**31
"""A priority above that of all pods."""
_REPAYMENT = 0.1
"""Debt that is forgiven in each second [s]: a tenth of the time may be reserved in vain."""


@dataclass(frozen=True, slots=True)
class _Lack:
    """A gang that has lost members."""

    since: float = inf
    """[s since 1970]; not known before the next update."""
    was_whole: float = 0.0
    """For how long it was whole before [s]."""
    is_over: bool = False
    """Nothing is reserved any more until the gang is whole again."""


class Replacements:
    """The reservations of one term of the Lease, and their times."""

    def __init__(
        self,
        state: ClusterState,
        gangs: GangInformer,
        workloads: WorkloadInformer,
        seconds: Callable[[], float],
    ) -> None:
        """Start without reservations.

        Args:
            state: Has the pods, and counts the reserved GPUs.
            gangs: Have the plans.
            workloads: The owners of the pods.
            seconds: The longest time of a reservation, by policy [s].
        """
        self._state, self._gangs, self._workloads = state, gangs, workloads
        self._seconds = seconds
        self._lacks: dict[GangKey, _Lack] = {}
        self._planned: dict[GangKey, GangPlan] = {}
        """Plans with a late launcher that the watch does not show yet."""
        self._debts: dict[str, tuple[float, float]] = {}
        """By namespace: the debt [s], and when it was this [s since 1970]."""
        self._returning: dict[GangKey, Set[str]] = {}
        """Gangs whose evicted members go back to their places, and the uids of these."""
        self._succeeded: dict[GangKey, set[str]] = {}
        """Uids of the members of recorded plans that have succeeded."""
        self._has_synced = False

    def keep_places(self, key: GangKey, evicted: Set[str]) -> None:
        """Let evicted members of a gang go back to their own places, by their uids."""
        self._returning[key] = evicted
        if (lack := self._lacks.get(key)) and lack.is_over:
            # The time of these starts now.
            del self._lacks[key]
        self._reserve(key)

    def succeeded(self, key: GangKey) -> Set[str]:
        """Return the uids of the members of a gang's plan that have succeeded."""
        return self._succeeded.get(key, frozenset())

    def is_returning(self, key: GangKey) -> bool:
        """Return whether evicted members of a gang go back to their own places."""
        return key in self._returning

    def until(self, key: GangKey) -> float | None:
        """Return when the reservation for lost members ends [s since 1970]; None: there is none."""
        lack = self._lacks.get(key)
        if lack is None or lack.is_over or lack.since == inf or not self.places(key):
            return None
        return lack.since + self._seconds_of(key)

    @property
    def gpus(self) -> int:
        """The number of reserved GPUs, whole or in part."""
        gangs = self._state.reserved.gangs
        holdings = (place.holding for key in gangs for place in self.places(key))
        return sum(len(holding.gpus) for holding in holdings)

    def places(self, key: GangKey) -> list[Place]:
        """Return what is reserved for a gang, without what others have taken."""
        return [
            place
            for place in self._state.reserved.of(key)
            if (ledger := self._state.ledger(place.node))
            and ledger.holdings.get(place.holding.uid) is place.holding
        ]

    def time_left(self, now: float) -> float | None:
        """Return the time until a reservation ends [s]; None: there is none."""
        ends = [
            lack.since + self._seconds_of(key)
            for key, lack in self._lacks.items()
            if not lack.is_over
        ]
        return max(0.0, min(ends) - now) if ends else None

    def planned(self, key: GangKey, plan: GangPlan) -> None:
        """Reserve the GPUs of a late launcher by a plan that is about to be carried out."""
        self._planned[key] = plan
        self._reserve(key)

    def pods_lost(self, groups: Iterable[Key]) -> None:
        """Reserve GPUs of pods that the watch has just shown to be gone, by group."""
        for group in groups if self._has_synced else ():
            for key in self._gangs.named(group):
                self._reserve(key)

    def update(self, now: float, changed: Set[GangKey]) -> Set[GangKey]:
        """Start and end reservations; return the gangs of which the time of one has ended.

        Args:
            now: The time [s since 1970].
            changed: Gangs of which the object, a pod or the owner changed.

        Cost: the pods of these gangs; in the first call of a term those of all gangs.
        """
        self._debts = {name: debt for name, debt in self._debts.items() if self._debt(name, now)}
        gangs = self._gangs.reflector.items
        if not self._has_synced:
            changed = {gang.key for gang in gangs.values()}
        for key in changed | self._planned.keys():
            self._reserve(key)
        expired = set()
        for key, lack in list(self._lacks.items()):
            gang = gangs.get(object_key(key))
            if gang is None or (key in changed and not self._lacking(key)[1]):
                self._end(key, now)
            elif lack.since == inf:
                self._start(key, gang, now)
            elif not lack.is_over and now >= lack.since + self._seconds_of(key):
                self._expire(key, now)
                expired.add(key)
        for key in [key for key in self._succeeded if object_key(key) not in gangs]:
            del self._succeeded[key]
        for key in [key for key in self._returning if not self._goes_back(key)]:
            del self._returning[key]
            self._reserve(key)
        self._has_synced = True
        return expired

    def _start(self, key: GangKey, gang: Gang, now: float) -> None:
        """Note since when a gang lacks members. At the start of a term its status may say it."""
        placed, lacking = (
            seconds_of(gang.status.since(PLACED, status)) for status in ("True", "False")
        )
        since = now if lacking is None or self._has_synced else min(now, lacking)
        is_in_debt = key not in self._returning and self._debt(key.namespace, now) >= _DEBT_MAX
        is_over = is_in_debt or now >= since + self._seconds_of(key)
        was_whole = 0.0 if placed is None else max(0.0, now - placed)
        self._lacks[key] = _Lack(since, was_whole, is_over)
        self._reserve(key)

    def _expire(self, key: GangKey, now: float) -> None:
        """End the reservation of a gang that still lacks members."""
        self._lacks[key] = replace(self._lacks[key], is_over=True)
        if self._returning.pop(key, None) is None:
            self._owe(key.namespace, self._seconds(), now)
        self._reserve(key)

    def _end(self, key: GangKey, now: float) -> None:
        """End the reservation of a gang that has all its members again, or does not run."""
        lack = self._lacks.pop(key)
        self._reserve(key)
        if lack.is_over or key in self._returning:
            return
        settled = [pod for pod in self._pods(key) if pod.settled]
        is_replaced = len(settled) >= (self._needed(key) or inf)
        time = now - lack.since
        self._owe(key.namespace, time - max(lack.was_whole, _USUAL) if is_replaced else time, now)

    def _reserve(self, key: GangKey) -> None:
        """Reserve the GPUs that a gang lacks; those of lost members unless their time is over."""
        late, lost = self._lacking(key)
        if lost:
            self._lacks.setdefault(key, _Lack())
        if not late:
            self._planned.pop(key, None)
        lack = self._lacks.get(key)
        places = (*late, *(lost if lack and not lack.is_over else ()))
        usages = (pod.usage for pod in self._pods(key) if places and pod.settled)
        priority = max((usage.priority for usage in usages if usage is not None), default=0)
        priority = _NOBODY if key in self._returning else priority
        self._state.reserved.set(key, priority, places)

    def _lacking(self, key: GangKey) -> tuple[list[Place], list[Place]]:
        """Return the places of a late launcher, and those of lost members."""
        late: list[Place] = []
        lost: list[Place] = []
        plan, needed = self._plan(key), self._needed(key)
        if plan is None or needed is None or not key.owner:
            return late, lost
        pods = self._pods(key)
        self._note_succeeded(key, plan, pods)
        sibling = running_member(pods)
        if sibling is None or self._workloads.state(key.owner) is not OwnerState.ACTIVE:
            return late, lost
        for member in lost_members(plan, pods, needed, self.succeeded(key)):
            node = self._state.node(member.node)
            holding = node and reserved_holding(member, key, node, sibling)
            if holding:
                (lost if member.uid else late).append(Place(member.node, holding))
        return late, lost

    def _note_succeeded(self, key: GangKey, plan: GangPlan, pods: Iterable[PodInfo]) -> None:
        """Remember which members have succeeded: their pods may be deleted before the others."""
        ended = {pod.uid for pod in pods if pod.settled and pod.usage is None}
        known = self._succeeded.pop(key, set()) | ended
        if kept := known & {member.uid for member in plan.members}:
            self._succeeded[key] = kept

    def _goes_back(self, key: GangKey) -> bool:
        """Return whether evicted members of a gang have not ended, or are not replaced yet."""
        evicted = self._returning[key]
        return key in self._lacks or any(pod.uid in evicted for pod in self._pods(key))

    def _seconds_of(self, key: GangKey) -> float:
        return max(self._seconds(), _RETURN) if key in self._returning else self._seconds()

    def _plan(self, key: GangKey) -> GangPlan | None:
        gang, planned = self._gangs.reflector.items.get(object_key(key)), self._planned.get(key)
        recorded = gang.spec.plan if gang else None
        if planned and recorded and recorded.id == planned.id:
            del self._planned[key]
        return self._planned.get(key) or recorded

    def _needed(self, key: GangKey) -> int | None:
        gang = self._gangs.reflector.items.get(object_key(key))
        known, kin = gang.spec.size if gang else None, self._state.groups.kin(key[:2])
        return self._workloads.owners.size(key, self._pods(key), known, kin)

    def _pods(self, key: GangKey) -> list[PodInfo]:
        key_of = self._workloads.owners.key
        return [pod for pod in self._state.groups.of(key[:2]) if key_of(pod) == key]

    def _debt(self, namespace: str, now: float) -> float:
        debt, then = self._debts.get(namespace, (0.0, now))
        return max(0.0, debt - _REPAYMENT * (now - then))

    def _owe(self, namespace: str, seconds: float, now: float) -> None:
        if seconds > 0:
            self._debts[namespace] = self._debt(namespace, now) + seconds, now
