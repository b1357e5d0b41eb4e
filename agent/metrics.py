"""Metrics of the agent."""

from collections.abc import Iterable
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

_BIND_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


@dataclass(frozen=True, slots=True)
class GPUSample:
    """One GPU at the moment."""

    i: int
    uuid: str
    model: str
    healthy: bool
    mismatches: int
    """Processes on it that its pods do not explain."""


@dataclass(frozen=True, slots=True)
class HolderSample:
    """A GPU of a pod; one that shares a GPU has a sample, too."""

    uid: str
    """UID of the pod. Any pod can read the metrics, so names of tenants are left out."""
    i: int
    uuid: str


class Metrics(Collector):
    """Metrics of one node."""

    def __init__(self, registry: CollectorRegistry, node: str) -> None:
        """Register all metrics.

        Args:
            registry: The registry of `/metrics`.
            node: Name of the node: a label of the metrics of GPUs.
        """
        self._node = node
        self.gpus: tuple[GPUSample, ...] = ()
        self.holders: tuple[HolderSample, ...] = ()
        self._binds = Histogram(
            "linkwise_agent_bind_seconds",
            "Time in which a container was given its GPUs, or was refused.",
            buckets=_BIND_SECONDS,
            registry=registry,
        )
        self._refused = Counter(
            "linkwise_agent_refused_containers",
            "Containers that did not start because their GPUs could not be given to them.",
            registry=registry,
        )
        registry.register(self)

    def bound(self, seconds: float, *, refused: bool) -> None:
        """Count the binding of one container."""
        self._binds.observe(seconds)
        if refused:
            self._refused.inc()

    def collect(self) -> Iterable[Metric]:
        """Return the present samples of the GPUs."""
        labels = ("node", "gpu", "uuid", "model")
        healthy = GaugeMetricFamily(
            "linkwise_gpu_healthy", "1 if new pods may have the GPU.", labels=labels
        )
        mismatches = GaugeMetricFamily(
            "linkwise_gpu_process_mismatches",
            "Processes on the GPU whose pods do not have it.",
            labels=labels,
        )
        for gpu in self.gpus:
            values = (self._node, str(gpu.i), gpu.uuid, gpu.model)
            healthy.add_metric(values, gpu.healthy)
            mismatches.add_metric(values, gpu.mismatches)
        holders = GaugeMetricFamily(
            "linkwise_gpu_holder",
            "1 for each pod, by its UID, and GPU that it has; join it with others by the UUID.",
            labels=("node", "gpu", "uuid", "uid"),
        )
        for holder in self.holders:
            holders.add_metric((self._node, str(holder.i), holder.uuid, holder.uid), 1)
        return healthy, mismatches, holders
