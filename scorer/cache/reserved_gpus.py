"""GPUs without a pod that are reserved for units: the ledgers count them as taken.

A pod that has some of them takes precedence. Pods of a higher priority than the gang may have
them, so that a reservation never undoes a preemption.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from cluster.account.gpu_usage import LedgerError
from cluster.account.node_ledger import Holding, NodeLedger
from cluster.allocations.gpus import Counted
from cluster.gang import GangKey


class Purpose(Enum):
    """The reason of a reservation."""

    REPLACEMENT = "replacement"
    """Members that a running gang lacks."""
    NOMINATION = "nomination"
    """A unit for which others are evicted."""


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
        self._by_node: dict[str, dict[str, tuple[int, Holding]]] = {}
        """By node, then by uid of the member: the priority of the gang, and the GPUs."""

    def set(
        self,
        gang: GangKey,
        priority: int,
        places: tuple[Place, ...],
        purpose: Purpose = Purpose.REPLACEMENT,
    ) -> None:
        """Reserve these places for a unit, instead of those before for the same purpose."""
        before = self.of(gang, purpose)
        if before == places:
            return
        # An entry of a ledger is known by its identity.
        known = {place: place for place in before}
        places = tuple(known.get(place, place) for place in places)
        self._reservations.pop((gang, purpose), None)
        if places:
            self._reservations[gang, purpose] = _Reservation(priority, places)
        for place in before:
            if place not in places:
                self._by_node[place.node].pop(place.holding.uid, None)
                if not self._by_node[place.node]:
                    del self._by_node[place.node]
                self._on_change(place)
        for place in places:
            if place not in before:
                others = self._by_node.setdefault(place.node, {})
                # They are counted again, after those of higher priorities.
                for _, holding in others.values():
                    self._on_change(Place(place.node, holding))
                others[place.holding.uid] = priority, place.holding
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
        """Return what a pod of this priority may have on a node although it is reserved."""
        held = self._by_node.get(node, {}).values()
        return [holding for reserved_for, holding in held if reserved_for < priority]

    def passed_priority(self, priority: int) -> int | None:
        """Return the highest priority of which a pod may have all reserved GPUs; None: of none."""
        priorities = (reservation.priority for reservation in self._reservations.values())
        return max((each for each in priorities if each < priority), default=None)

    def held_on(self, ledger: NodeLedger) -> NodeLedger:
        """Return the ledger of a node with the places there that no pod has.

        Of several that need the same GPUs, that of the highest priority has them.
        """
        places = self._by_node.get(ledger.node.name, {}).values()
        for _, holding in sorted(places, key=lambda place: -place[0]):
            if holding.uid not in ledger.holdings and _has_room(ledger, holding):
                try:
                    ledger = ledger.hold(holding)
                except LedgerError:
                    continue
        return ledger


def _has_room(ledger: NodeLedger, holding: Holding) -> bool:
    """Return whether NVIDIA's plugin has as many GPUs left; `hold` checks those that are chosen."""
    gpus = holding.gpus
    return not isinstance(gpus, Counted) or ledger.counted_free(gpus.resource) >= gpus.number
