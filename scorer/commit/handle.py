"""The objects that the components of a leader share."""

from dataclasses import dataclass

from runtime.kube.client import Kube
from runtime.process.clock import Clock
from scorer.cache.informers import Informers
from scorer.metrics import Metrics
from scorer.queue.fault_isolation import FaultIsolation
from scorer.report.status_reporter import StatusReporter
from scorer.timings import Timings


@dataclass(frozen=True, slots=True)
class Handle:
    """For one term of the Lease, as the handle of the scheduling framework is for its plugins."""

    kube: Kube
    """With a short timeout, for writes."""
    informers: Informers
    status_reporter: StatusReporter
    metrics: Metrics
    faults: FaultIsolation
    term: int
    clock: Clock
    """The wall clock [s since 1970]."""
    timings: Timings
