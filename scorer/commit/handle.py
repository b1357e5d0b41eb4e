"""Shared dependencies of the components of one leader."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from linkwise.runtime.kube.client import Kube
from linkwise.runtime.process.clock import Clock
from scorer.cache.informers import Informers
from scorer.metrics import Metrics
from scorer.queue.fault_isolation import FaultIsolation
from scorer.report.status_reporter import StatusReporter
from scorer.timings import Timings

IN_FLIGHT = 16
"""Calls that write plans and evictions at a time, at most. With more, an API server on a small
machine does not answer in time."""


@dataclass(frozen=True, slots=True)
class Handle:
    """The dependencies of components during one term of the Lease.

    It corresponds to `framework.Handle` of kube-scheduler, which is passed to plugins.
    """

    kube: Kube
    """A client with a short timeout, for writes, of which few are in flight at a time."""
    informers: Informers
    status_reporter: StatusReporter
    metrics: Metrics
    faults: FaultIsolation
    term: int
    clock: Clock
    """The wall clock [s since 1970]."""
    timings: Timings
    unfenced: Callable[[], Mapping[str, str]] = dict
    """Returns, by claims node, why kube-scheduler may give its GPUs to claims of others."""
