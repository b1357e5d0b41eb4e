"""Units that may be evicted for another one, and the cost of evicting some of them."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from linkwise.cluster.account.node_ledger import Holding

_GRACE_STEP = 300
"""Grace periods that are equal in whole steps cost the same [s]: usual ones cost nothing."""


class Amounts(NamedTuple):
    """Amounts that are free on a node, or that a pod needs or holds."""

    gpus: int
    cpu: int
    memory: int
    pods: int

    def plus(self, other: "Amounts") -> "Amounts":
        """Return the sum."""
        gpus, cpu, memory, pods = self
        return Amounts(gpus + other[0], cpu + other[1], memory + other[2], pods + other[3])

    def minus(self, other: "Amounts") -> "Amounts":
        """Return the difference."""
        gpus, cpu, memory, pods = self
        return Amounts(gpus - other[0], cpu - other[1], memory - other[2], pods - other[3])


class Numbers(NamedTuple):
    """Numbers of a unit, one row of the table that units are sorted by."""

    priority: int
    grace: int
    """As in `Cost`."""
    pods: int
    nodes: int
    """On which it has pods."""
    gpus: int
    starts: float
    """The sum over its GPUs of the time when their pod started [s since the epoch]."""


@dataclass(frozen=True, slots=True)
class VictimPod:
    """A pod that holds resources on a node."""

    node: str
    holding: Holding
    """Its entry in the ledger of the node."""
    started: float
    """[s since the epoch]"""
    budgets: frozenset[str] = frozenset()
    """The PodDisruptionBudgets that select it, as `namespace/name`."""
    grace: int = 0
    """The time that its containers have to end [s]."""


@dataclass(frozen=True, eq=False)
class Victim:
    """A gang or a single pod: its pods are evicted together or not at all.

    An elastic gang may also lose a part: some of its spare pods, the last ones first. Compared by
    identity, since sets of units are searched.
    """

    name: str
    """`namespace/name` of the gang, or of the pod."""
    priority: int
    """The highest of its pods' priorities."""
    pods: tuple[VictimPod, ...]
    protected: str | None = None
    """Why it must not be evicted; None: it may be."""
    spare: int = 0
    """Number of its last pods without which it goes on running; fewer than all."""
    whole: "Victim | None" = None
    """The unit of which this is a part; None: it is a unit."""

    def part(self, pods: int) -> "Victim":
        """Return the last pods of an elastic gang, at most the spare ones."""
        return replace(self, pods=self.pods[-pods:], spare=0, whole=self)

    def smaller(self) -> Iterator["Victim"]:
        """Yield each smaller part that may be evicted, the largest one first."""
        whole = self.whole or self
        most = len(self.pods) - 1 if self.whole else self.spare
        yield from (whole.part(pods) for pods in range(most, 0, -1))

    @cached_property
    def amounts(self) -> dict[str, Amounts]:
        """The amounts that it holds, by node."""
        held: dict[str, Amounts] = {}
        for pod in self.pods:
            demand = pod.holding.demand
            one = Amounts(len(pod.holding.gpus), demand.cpu, demand.memory, 1)
            held[pod.node] = held[pod.node].plus(one) if pod.node in held else one
        return held

    @cached_property
    def budgets(self) -> Counter[str]:
        """The number of its pods that each PodDisruptionBudget selects."""
        return Counter(budget for pod in self.pods for budget in pod.budgets)

    @cached_property
    def numbers(self) -> Numbers:
        """What its cost alone depends on, besides budgets."""
        pairs = [(len(pod.holding.gpus), pod.started) for pod in self.pods]
        return Numbers(
            self.priority,
            max(pod.grace for pod in self.pods) // _GRACE_STEP,
            len(self.pods),
            len(self.amounts),
            sum(gpus for gpus, _ in pairs),
            sum(gpus * started for gpus, started in pairs),
        )

    def gpu_seconds(self, now: float) -> float:
        """Return the GPU time that an eviction loses: that of all its pods since they started.

        Args:
            now: [s since the epoch]
        """
        return max(0.0, self.numbers.gpus * now - self.numbers.starts)


class Cost(NamedTuple):
    """The cost of evicting some units; the lower one in this order is better.

    Each amount grows, or stays, with each further unit. So a part of a set never costs more than
    the set.
    """

    priority: int
    """The highest."""
    grace: int
    """The longest grace period, in whole steps of five minutes. It is compared after the priority:
    else a long one would protect cheap pods."""
    units: int
    pods: int
    gpu_seconds: float


class UnitsByCost(NamedTuple):
    """Units in the order of the cost of each alone."""

    units: list[Victim]
    levels: NDArray[np.int64]
    """By unit: equal where priority and grace are, and higher where these cost more."""
    spans: NDArray[np.int64]
    """By unit: the number of nodes on which it has pods."""


@dataclass(frozen=True, slots=True)
class Disruptions:
    """What evictions cost, and which ones are allowed, besides the units."""

    now: float
    """[s since the epoch]"""
    allowed: Mapping[str, int] = field(default_factory=dict)
    """The evictions that each PodDisruptionBudget allows now; a missing one allows none."""

    def cost(self, units: Sequence[Victim]) -> Cost:
        """Return the cost of evicting units, at least one."""
        return Cost(
            priority=max(unit.priority for unit in units),
            grace=max(unit.numbers.grace for unit in units),
            units=len(units),
            pods=sum(len(unit.pods) for unit in units),
            gpu_seconds=sum(unit.gpu_seconds(self.now) for unit in units),
        )

    def excess(self, units: Iterable[Victim]) -> Counter[str]:
        """Return how many pods of these units each PodDisruptionBudget lets not be evicted.

        Without an entry the budgets allow to evict all of them.
        """
        counts = Counter[str]()
        for unit in units:
            if unit.budgets:
                counts.update(unit.budgets)
        over = {name: number - self.allowed.get(name, 0) for name, number in counts.items()}
        return Counter({name: number for name, number in over.items() if number > 0})

    def in_order(self, units: Sequence[Victim]) -> UnitsByCost:
        """Return units in the order of the cost of each alone; of equal ones the first is first."""
        numbers = chain.from_iterable([unit.numbers for unit in units])
        priority, grace, pods, spans, gpus, starts = (
            np.fromiter(numbers, np.float64).reshape(-1, len(Numbers._fields)).T
        )
        lost = np.maximum(0.0, gpus * self.now - starts)
        order = np.lexsort((lost, pods, grace, priority))
        priority, grace = priority[order], grace[order]
        is_higher = (np.diff(priority, prepend=np.inf) != 0) | (np.diff(grace, prepend=-1) != 0)
        in_order = [units[i] for i in order.tolist()]
        return UnitsByCost(in_order, np.cumsum(is_higher), spans[order].astype(np.int64))
