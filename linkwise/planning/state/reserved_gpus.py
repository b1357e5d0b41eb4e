"""GPUs without a pod that are reserved for units: the ledgers count them as taken.

A pod that has some of them takes precedence. Pods of a higher priority than the gang may have
them, so that a reservation never undoes a preemption.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple

from linkwise.cluster.account.gpu_usage import LedgerError
from linkwise.cluster.account.node_ledger import Holding, NodeLedger
from linkwise.cluster.allocations.gpus import Counted, Exact, GPUs
from linkwise.cluster.gang import GangKey
from linkwise.cluster.requests.demand import NO_DEMAND


class Purpose(Enum):
    """The reason of a reservation."""

    REPLACEMENT = "replacement"
    """Members that a running gang lacks."""
    NOMINATION = "nomination"
    """A unit for which others are evicted."""
    SCHEDULER = "scheduler"
    """A pod that kube-scheduler nominated. It keeps the GPUs from others itself, except from units
    of the planner, so that they are open to the pods about which it asks."""


class Place(NamedTuple):
    """The GPUs of one member on its node."""

    node: str
    holding: Holding


@dataclass(frozen=True, slots=True)
class _Reservation:
    priority: int
    places: tuple[Place, ...]


class ReservedGPUs:
    """The reservations of one term of the Lease."""

    def __init__(self, on_change: Callable[[Place], None]) -> None:
        """Start without reservations.

        Args:
            on_change: Called with each place that is added or removed.
        """
        self._on_change = on_change
        self._reservations: dict[tuple[GangKey, Purpose], _Reservation] = {}
        self._by_node: dict[str, dict[str, tuple[int, Holding, Purpose]]] = {}
        """By node, then by uid of the member: the priority of the gang, and the GPUs."""

    def set(
        self,
        gang: GangKey,
        priority: int,
        places: tuple[Place, ...],
        purpose: Purpose = Purpose.REPLACEMENT,
    ) -> None:
        """Reserve these places for a unit, instead of those before for the same purpose."""
        before, known_as = self.of(gang, purpose), self._reservations.get((gang, purpose))
        has_priority = known_as is not None and known_as.priority == priority
        if before == places and (has_priority or not places):
            return
        # An entry of a ledger is known by its identity.
        known = {place: place for place in before}
        places = tuple(known.get(place, place) for place in places)
        self._reservations.pop((gang, purpose), None)
        if places:
            self._reservations[gang, purpose] = _Reservation(priority, places)
        kept = known.keys() & set(places)
        for place in before:
            if place not in kept:
                self._by_node[place.node].pop(place.holding.uid, None)
                if not self._by_node[place.node]:
                    del self._by_node[place.node]
                self._on_change(place)
        added = [place for place in places if place not in kept or not has_priority]
        for node in dict.fromkeys(place.node for place in added):
            # They are counted again, after those of higher priorities.
            for _, holding, _ in self._by_node.get(node, {}).values():
                self._on_change(Place(node, holding))
        for place in added:
            others = self._by_node.setdefault(place.node, {})
            others[place.holding.uid] = priority, place.holding, purpose
            self._on_change(place)

    @property
    def gangs(self) -> Iterable[GangKey]:
        """The gangs for whose missing members something is reserved."""
        return [key for key, purpose in self._reservations if purpose is Purpose.REPLACEMENT]

    @property
    def nominated(self) -> int:
        """The number of GPUs that are reserved for units for which others are evicted."""
        return sum(
            len(place.holding.gpus)
            for (_, purpose), reservation in self._reservations.items()
            if purpose is Purpose.NOMINATION
            for place in reservation.places
        )

    def of(self, gang: GangKey, purpose: Purpose = Purpose.REPLACEMENT) -> tuple[Place, ...]:
        """Return the places that are reserved for a unit."""
        reservation = self._reservations.get((gang, purpose))
        return reservation.places if reservation else ()

    def open_to(self, gang: GangKey, priority: int) -> Iterator[Place]:
        """Yield the places that a unit may have: its own, and those of lower priorities."""
        for (key, _), reservation in self._reservations.items():
            if key == gang or reservation.priority < priority:
                yield from reservation.places

    def open_on(self, node: str, priority: int) -> list[Holding]:
        """Return what a pod about which kube-scheduler asks may have although it is reserved."""
        return [
            holding
            for reserved_for, holding, purpose in self._by_node.get(node, {}).values()
            if reserved_for < priority or purpose is Purpose.SCHEDULER
        ]

    @property
    def by_scheduler(self) -> list[tuple[GangKey, int, tuple[Place, ...]]]:
        """The pods that kube-scheduler nominated, each with its priority and its places."""
        return [
            (key, reservation.priority, reservation.places)
            for (key, purpose), reservation in self._reservations.items()
            if purpose is Purpose.SCHEDULER
        ]

    def passed_priority(self, priority: int) -> int | None:
        """Return the highest priority of which a pod may have all reserved GPUs; None: of none."""
        priorities = (reservation.priority for reservation in self._reservations.values())
        return max((each for each in priorities if each < priority), default=None)

    def held_on(self, ledger: NodeLedger) -> NodeLedger:
        """Return the ledger of a node with the places there that no pod has.

        Of several that need the same GPUs, that of the highest priority has them.
        """
        places = self._by_node.get(ledger.node.name, {}).values()
        for _, holding, _ in sorted(places, key=lambda place: -place[0]):
            if holding.uid not in ledger.holdings and _has_room(ledger, holding):
                try:
                    ledger = ledger.hold(holding)
                except LedgerError:
                    continue
        return ledger


def single_places(node: str, whole: Holding) -> tuple[Place, ...]:
    """Return each GPU of a member by itself: it is reserved once it is free, without the others.

    What it needs besides GPUs is reserved with the first one.
    """
    gpus = whole.gpus
    single: Sequence[GPUs] = (
        [Counted(gpus.resource, 1)] * len(gpus)
        if isinstance(gpus, Counted)
        else [Exact((share,)) for share in gpus.shares]
    )
    places: list[Place] = []
    for i, each in enumerate(single or [gpus]):
        part = replace(whole, uid=f"{whole.uid}/{i}", gpus=each)
        part = replace(part, demand=NO_DEMAND) if i else part
        places.append(Place(node, part))
    return tuple(places)


def _has_room(ledger: NodeLedger, holding: Holding) -> bool:
    """Return whether NVIDIA's plugin has as many GPUs left; `hold` checks those that are chosen."""
    gpus = holding.gpus
    return not isinstance(gpus, Counted) or ledger.counted_free(gpus.resource) >= gpus.number
