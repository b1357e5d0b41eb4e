"""Metrics that every component has, in a registry of its own."""

import asyncio
from collections.abc import Callable, Iterable, Mapping

from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
)
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from runtime.process.clock import monotonic

_LAG = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_LAG_PERIOD = 0.25


def new_registry() -> CollectorRegistry:
    """Return a registry with the process's memory, CPU time, open files and collections."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    return registry


def measure_loop_lag(registry: CollectorRegistry) -> None:
    """Measure how late the running loop calls what is due, for as long as the loop runs.

    A blocked loop answers no request and renews no Lease. One block is one observation, of nearly
    its whole length.

    Args:
        registry: Gets the histogram.
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
        # The loop's own clock may stand still while a callback runs.
        lag.observe(max(0.0, monotonic() - due))
        wait()

    wait()


class Gauges(Collector):
    """Values that are read when metrics are read, under one name, with at most one label.

    What has no value now gives no sample, so that an alert on its absence can work.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        name: str,
        documentation: str,
        values: Mapping[str, Callable[[], float | None]],
        *,
        label: str = "",
    ) -> None:
        self._name, self._documentation, self._label = name, documentation, label
        self._values = values
        registry.register(self)

    def collect(self) -> Iterable[Metric]:
        """Return the samples of this moment."""
        labels = (self._label,) if self._label else ()
        family = GaugeMetricFamily(self._name, self._documentation, labels=labels)
        for key, read in self._values.items():
            if (value := read()) is not None:
                family.add_metric((key,) if self._label else (), value)
        return (family,)
