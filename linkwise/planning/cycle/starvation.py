"""Waiting times of units since they could be planned, and reservations of nodes for starving units.

A unit that has waited for `gangs.ageingMinutes` may have nodes reserved for the same time. Then
others may use these nodes, for the same time at first, and twice as long each time its namespace
returns without a placement. Namespaces are counted rather than units: a tenant can create any
number of units.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from linkwise.cluster.gang import GangKey
from linkwise.cluster.objects.time import seconds_of
from linkwise.planning.gang.crd import Gang, object_key
from linkwise.planning.gang.unit import Unit

MIN_RESERVATION = 60.0
"""The shortest reservation of nodes, however short the policy's ageing is [s]."""
_MAX_PAUSE = 86_400.0
"""The longest pause between two reservations [s]."""


@dataclass(frozen=True, slots=True)
class _ReservationWindow:
    until: float
    """[s since 1970]"""
    pause: float
    """Time for which others may use the nodes after it [s]."""

    @property
    def next(self) -> float:
        return self.until + self.pause


class StarvationGuard:
    """The waiting times and reservations of one term of the Lease."""

    def __init__(self, min_reservation: float) -> None:
        """Start without units.

        Args:
            min_reservation: The shortest reservation, however short the policy's ageing is [s].
        """
        self._min_reservation = min_reservation
        self._since: dict[GangKey, float] = {}
        """Since when each unit could be planned [s since 1970]."""
        self._reservations: dict[str, _ReservationWindow] = {}
        """By namespace: the last one."""
        self._reserved_for: GangKey | None = None

    def update(
        self, units: Iterable[Unit], now: float, gangs: Mapping[tuple[str, str], Gang] | None
    ) -> None:
        """Take units that wait; the time of a unit that cannot be planned restarts from zero.

        Args:
            units: Those that came or changed.
            now: The time [s since 1970].
            gangs: In the first cycle of a term, the Gangs: they say since when units could be
                planned under the last leader. Later None.
        """
        for unit in units:
            if unit.blocked is not None:
                self._since.pop(unit.key, None)
            elif unit.key not in self._since:
                self._since[unit.key] = _since(unit, now, gangs)

    def forget(self, key: GangKey) -> None:
        """Forget the time of a unit that does not wait any more."""
        self._since.pop(key, None)

    def waited(self, unit: Unit, now: float) -> float:
        """Return for how long a unit could be planned [s]."""
        return now - self._since.get(unit.key, now)

    def is_starving(self, unit: Unit, now: float, ageing: float) -> bool:
        """Return whether nodes may be reserved for a unit that does not fit.

        Args:
            unit: The unit that waits.
            now: The time [s since 1970].
            ageing: The waiting time after which a unit starves [s].
        """
        if self.waited(unit, now) < ageing:
            return False
        last = self._reservations.get(unit.key.namespace)
        return last is None or now < last.until or now >= last.next

    def reserve(self, unit: Unit | None, now: float, ageing: float) -> None:
        """Set the unit for which nodes are reserved from now on; None: no nodes are reserved."""
        self._reserved_for = unit.key if unit else None
        if unit is None:
            return
        namespace, length = unit.key.namespace, max(ageing, self._min_reservation)
        last = self._reservations.get(namespace)
        if last is None or now >= last.next + last.pause:
            self._reservations[namespace] = _ReservationWindow(now + length, length)
        elif now >= last.next:
            pause = min(2 * last.pause, _MAX_PAUSE)
            self._reservations[namespace] = _ReservationWindow(now + length, pause)

    def placed(self, key: GangKey) -> None:
        """End the reservation of a unit that was placed, and the pause of its namespace."""
        if key == self._reserved_for:
            self._reserved_for = None
            self._reservations.pop(key.namespace, None)

    def reservation_left(self, now: float) -> float | None:
        """Return the time until the current reservation ends [s]; None: there is none."""
        key = self._reserved_for
        last = self._reservations.get(key.namespace) if key else None
        return last.until - now if last and last.until > now else None


def assembled_since(unit: Unit, gang: Gang | None) -> float | None:
    """Return since when a unit could be planned, as its objects say [s since 1970].

    For a gang this is the condition `Assembled` of its Gang, but not before its last member was
    created. None: no object says it.
    """
    recorded = gang.assembled_since if gang else None
    if recorded is None:
        return None
    return seconds_of(max(recorded, *(pod.created for pod in unit.waiting)))


def _since(unit: Unit, now: float, gangs: Mapping[tuple[str, str], Gang] | None) -> float:
    gang = gangs.get(object_key(unit.key)) if gangs else None
    since = assembled_since(unit, gang)
    return now if since is None else min(since, now)
