"""Metrics of every component: registry, event loop lag, gauges and counters that are read."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import ClassVar

from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
)
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from linkwise.runtime.process.clock import monotonic

_LAG = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_LAG_PERIOD = 0.25


def new_registry() -> CollectorRegistry:
    """Return a registry with memory, CPU time, open files and garbage collections."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    return registry


def measure_loop_lag(registry: CollectorRegistry) -> None:
    """Measure how late the running event loop calls timers.

    A blocked loop answers no request and renews no Lease. Each block is one observation of nearly
    its whole duration.

    Args:
        registry: The histogram is registered here.
    """
    lag = Histogram(
        "linkwise_event_loop_lag_seconds",
        "How late the event loop called a timer.",
        registry=registry,
        buckets=_LAG,
    )
    loop = asyncio.get_running_loop()

    def wait() -> None:
        loop.call_later(_LAG_PERIOD, observe, monotonic() + _LAG_PERIOD)

    def observe(due: float) -> None:
        # uvloop's clock stands still while a callback runs.
        lag.observe(max(0.0, monotonic() - due))
        wait()

    wait()


class Gauges(Collector):
    """Gauges that are read when metrics are scraped: one name, at most one label.

    Each label value has a function; where label values change, one function returns all values.
    None gives no sample, so that alerts on absence work.
    """

    _family: ClassVar[type[CounterMetricFamily | GaugeMetricFamily]] = GaugeMetricFamily

    def __init__(
        self,
        registry: CollectorRegistry,
        name: str,
        documentation: str,
        values: Mapping[str, Callable[[], float | None]] | Callable[[], Mapping[str, float | None]],
        *,
        label: str = "",
    ) -> None:
        self._name, self._documentation, self._label = name, documentation, label
        self._values = values
        registry.register(self)

    def collect(self) -> Iterable[Metric]:
        """Return the present samples."""
        labels = (self._label,) if self._label else ()
        family = self._family(self._name, self._documentation, labels=labels)
        values = self._values
        present = (
            values() if callable(values) else {label: read() for label, read in values.items()}
        )
        for key, value in present.items():
            if value is not None:
                family.add_metric((key,) if self._label else (), value)
        return (family,)


class Counters(Gauges):
    """Counters that are read when metrics are scraped: numbers since the process has started.

    Samples have the name with `_total`.
    """

    _family = CounterMetricFamily
