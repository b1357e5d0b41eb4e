"""Waiting times of units on the leader's clock, and the nodes that are reserved for one of them."""

from collections.abc import Callable, Iterable, Mapping

from linkwise.cluster.gang import GangKey
from linkwise.planning.cycle.cycle import Reservation, SchedulingCycle
from linkwise.planning.cycle.starvation import StarvationGuard
from linkwise.planning.gang.crd import Gang
from linkwise.planning.gang.unit import Unit
from linkwise.runtime.kube.objects import Key
from linkwise.runtime.process.clock import Clock, loop_time
from scorer.cache.informers import Informers


class Starvation:
    """The waiting times of one term of the Lease, and the reservation of its last cycle."""

    def __init__(self, informers: Informers, clock: Clock, min_reservation: float) -> None:
        """Start without units.

        Args:
            informers: Have the policy.
            clock: The wall clock [s since 1970].
            min_reservation: As in `StarvationGuard`.
        """
        self._informers, self._clock = informers, clock
        self._guard = StarvationGuard(min_reservation)
        self._reserved_for: GangKey | None = None
        self.reservation: Reservation | None = None
        """The nodes that the last cycle reserved for a starving unit; None: it reserved none."""

    @property
    def _ageing(self) -> float:
        return self._informers.policy.policy.gangs.ageing_minutes * 60

    def update(self, units: Iterable[Unit], gangs: Mapping[Key, Gang] | None) -> None:
        """Take units that came or changed, as `StarvationGuard.update` does."""
        self._guard.update(units, self._clock(), gangs)

    def forget(self, key: GangKey) -> None:
        """Forget the time of a unit that does not wait any more."""
        self._guard.forget(key)

    def placed(self, key: GangKey) -> None:
        """End the reservation of a unit that was placed."""
        self._guard.placed(key)

    def waited(self, unit: Unit) -> float:
        """Return for how long a unit could be planned [s]."""
        return self._guard.waited(unit, self._clock())

    def ready_since(self, unit: Unit) -> float:
        """Return since when all of a unit could be planned [s, of the loop's clock]."""
        return loop_time() - self.waited(unit)

    def is_starving(self, unit: Unit) -> bool:
        """Return whether nodes may be reserved for a unit that does not fit."""
        return self._guard.is_starving(unit, self._clock(), self._ageing)

    def current(
        self, find: Callable[[GangKey], Unit | None], may_be_planned: Callable[[Unit], bool]
    ) -> tuple[Unit, frozenset[str]] | None:
        """Return the unit for which nodes were reserved and still are, and these.

        Args:
            find: Returns a pending unit.
            may_be_planned: Returns whether a unit may be planned now.
        """
        unit = find(self._reserved_for) if self._reserved_for else None
        if unit is None or self.reservation is None or unit.blocked:
            return None
        stays = may_be_planned(unit) and self.is_starving(unit)
        return (unit, self.reservation.nodes) if stays else None

    def reserve(self, cycle: SchedulingCycle) -> None:
        """Keep the reservation of a cycle for the next one."""
        self.reservation = cycle.reservation
        self._reserved_for = cycle.starving.key if cycle.starving else None
        self._guard.reserve(cycle.starving, self._clock(), self._ageing)

    def time_left(self) -> float | None:
        """Return the time until the reservation ends [s]; None: there is none."""
        return self._guard.reservation_left(self._clock())
