"""Waiting times of units since they could be planned, and reservations of nodes for aged units.

A unit that has waited for `gangs.ageingMinutes` may have nodes reserved for as long again. Then
others may use these nodes, for as long, and twice as long each time its namespace comes back
without being placed. Namespaces are counted rather than units: a tenant can make any number of
units.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from cluster.gang import GangKey
from scorer.gang.crd import Gang, name_of
from scorer.gang.unit import Unit

LEAST = 60.0
"""The shortest reservation, however short the policy's ageing is [s]."""
_LONGEST = 86_400.0
"""The longest pause between two reservations [s]."""


@dataclass(frozen=True, slots=True)
class _Reservation:
    until: float
    """[s since 1970]"""
    pause: float
    """How long others may use the nodes after it [s]."""

    @property
    def next(self) -> float:
        return self.until + self.pause


class StarvationGuard:
    """The waiting times and reservations of one term of the Lease."""

    def __init__(self) -> None:
        """Start without units."""
        self._since: dict[GangKey, float] = {}
        """Since when each unit could be planned [s since 1970]."""
        self._reservations: dict[str, _Reservation] = {}
        """By namespace: the last one."""
        self._first: GangKey | None = None
        """The unit for which nodes are reserved now."""

    def note(
        self, units: Iterable[Unit], now: float, before: Mapping[tuple[str, str], Gang] | None
    ) -> None:
        """Take everything that waits; a unit that cannot be planned now starts again from zero.

        Args:
            units: Everything that waits.
            now: The time [s since 1970].
            before: The Gangs, in the first look of a term: they say since when units could be
                planned under the last leader. None later.
        """
        known = self._since
        self._since = {
            unit.key: known[unit.key] if unit.key in known else _since(unit, now, before)
            for unit in units
            if unit.blocked is None
        }

    def waited(self, unit: Unit, now: float) -> float:
        """Return for how long a unit could be planned [s]."""
        return now - self._since.get(unit.key, now)

    def is_aged(self, unit: Unit, now: float, ageing: float) -> bool:
        """Tell whether nodes may be reserved for a unit that does not fit.

        Args:
            unit: What waits.
            now: The time [s since 1970].
            ageing: After how long [s].
        """
        if self.waited(unit, now) < ageing:
            return False
        last = self._reservations.get(unit.key.namespace)
        return last is None or now < last.until or now >= last.next

    def reserve(self, first: Unit | None, now: float, ageing: float) -> None:
        """Note for which unit nodes are reserved from now on; None: no nodes are reserved."""
        self._first = first.key if first else None
        if first is None:
            return
        namespace, length = first.key.namespace, max(ageing, LEAST)
        last = self._reservations.get(namespace)
        if last is None or now >= last.next + last.pause:
            self._reservations[namespace] = _Reservation(now + length, length)
        elif now >= last.next:
            self._reservations[namespace] = _Reservation(
                now + length, min(2 * last.pause, _LONGEST)
            )

    def placed(self, key: GangKey) -> None:
        """Note that a unit was placed: its reservation and its namespace's pause end."""
        if key == self._first:
            self._first = None
            self._reservations.pop(key.namespace, None)

    def left(self, now: float) -> float | None:
        """Return for how long nodes are reserved still [s]; None where none are."""
        last = self._reservations.get(self._first.namespace) if self._first else None
        return last.until - now if last and last.until > now else None


def assembled_since(unit: Unit, gang: Gang | None) -> float | None:
    """Return since when a unit could be planned, as its objects say [s since 1970].

    For a gang this is the condition `Assembled` of its Gang, but not before its last member was
    created. None where no object says it.
    """
    recorded = gang.assembled_since if gang else None
    if recorded is None:
        return None
    try:
        latest = max(recorded, *(pod.created for pod in unit.waiting))
        return datetime.fromisoformat(latest).timestamp()
    except ValueError:
        return None


def _since(unit: Unit, now: float, before: Mapping[tuple[str, str], Gang] | None) -> float:
    gang = before.get((unit.key.namespace, name_of(unit.key))) if before else None
    since = assembled_since(unit, gang)
    return now if since is None else min(since, now)
