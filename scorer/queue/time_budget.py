"""Time limits for planning one unit.

Planning blocks the event loop, so the first attempt gets a short limit. A unit that exceeds it
backs off; what was computed until then is cached, and the next attempt gets more time. A tenant
can create any number of slow units, so all units of its namespace are planned after the others.
"""

from collections.abc import Callable, Hashable

from linkwise.cluster.gang import GangKey
from linkwise.planning.gang.unit import Unit
from linkwise.runtime.process.backoff import Backoff
from scorer.timings import Timings


class TimeBudget:
    """The units that exceeded their limit."""

    def __init__(self, timings: Timings, on_ready: Callable[[], None]) -> None:
        """Start without units; `on_ready` is called when a unit may be planned again."""
        self._timings = timings
        self._backoff = Backoff(timings.slow_unit_retry, timings.slow_unit_retry_max, on_ready)
        self._requests: dict[GangKey, Hashable] = {}
        """The requests of each slow unit."""

    def __contains__(self, unit: Unit) -> bool:
        """Return whether a unit exceeded its limit and still requests the same."""
        request = self._requests.get(unit.key)
        return request is not None and request == unit.signature

    @property
    def slow_namespaces(self) -> frozenset[str]:
        """The namespaces of all slow units."""
        return frozenset(key.namespace for key in self._requests)

    def is_backing_off(self, unit: Unit) -> bool:
        """Return whether it is too early to plan a unit again."""
        return unit.key in self._backoff and unit in self

    def limit(self, unit: Unit) -> float:
        """Return how long planning a unit may take [s]."""
        return self._timings.retry_limit if unit in self else self._timings.first_limit

    def exceeded(self, unit: Unit) -> float:
        """Let a unit back off that exceeded its limit; return for how long [s]."""
        if unit not in self:
            self._backoff.reset(unit.key)
        self._requests[unit.key] = unit.signature
        return self._backoff.start(unit.key)

    def reset(self, key: GangKey) -> None:
        """Forget a unit: it was planned in time, or it is gone."""
        self._backoff.reset(key)
        self._requests.pop(key, None)
