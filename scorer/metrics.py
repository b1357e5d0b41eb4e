"""Metrics of placement: counts of gangs, nodes and faults, and durations."""

from collections import Counter as Count
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum

from prometheus_client import CollectorRegistry, Counter, Histogram

from runtime.process.metrics import Gauges
from scorer.gang.crd import Gang, Phase

_PLANNING = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5)
_COMMIT = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)
_PLACEMENT = (0.05, 0.1, 0.2, 0.5, 1, 5, 30, 60, 300, 600, 3600, 6 * 3600)


class Stage(StrEnum):
    """The stages of the work on one unit: a gang, a single pod, or a node that is reported."""

    ASSEMBLE = "assemble"
    """Assemble pods to units."""
    SIZE = "size"
    """Read the size of a gang."""
    PLAN = "plan"
    RECORD = "record"
    """Write the plan into the Gang."""
    COMMIT = "commit"
    """Write the pods."""
    TRACK = "track"
    """Track whether its pods are bound."""
    EVICT = "evict"
    PREEMPT = "preempt"
    """Record that units are to be evicted for another one, and evict them."""
    REPORT = "report"
    """Write the Gang's status, and Events."""
    BIND = "bind"
    SCALE_UP = "scale_up"
    """Ask an autoscaler for nodes."""


class EvictionReason(StrEnum):
    """Why pods were evicted."""

    UNBOUND = "unbound"
    """A member of their gang could not be bound."""
    PREEMPTED = "preempted"
    """A unit of a higher priority needs their GPUs."""


class PreemptionOutcome(StrEnum):
    """What became of a preemption."""

    STARTED = "started"
    PLACED = "placed"
    """The unit for which others were evicted has its GPUs."""
    FAILED = "failed"
    """The others did not end in time, or could not be evicted."""


class Metrics:
    """Counters and histograms of decisions. No value that a user chooses becomes a label."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._planning = Histogram(
            "linkwise_planning_duration_seconds",
            "One scheduling cycle: until the commit queue is full, or its time is over.",
            registry=registry,
            buckets=_PLANNING,
        )
        self._commits = Histogram(
            "linkwise_commit_duration_seconds",
            "From the first write of a plan on a pod to the last response.",
            registry=registry,
            buckets=_COMMIT,
        )
        self._placement = Histogram(
            "linkwise_placement_duration_seconds",
            "From when a gang or pod was complete until all its pods had their GPUs.",
            registry=registry,
            buckets=_PLACEMENT,
        )
        self._conflicts = Counter(
            "linkwise_placement_conflicts",
            "Pods whose planned allocation was refused: they changed meanwhile.",
            registry=registry,
        )
        self._evicted = Counter(
            "linkwise_evicted_pods",
            "Pods evicted to be placed again, by the reason.",
            ("reason",),
            registry=registry,
        )
        self._preemptions = Counter(
            "linkwise_preemptions",
            "Gangs and pods for which others were to be evicted, by what became of it.",
            ("outcome",),
            registry=registry,
        )
        for reason in EvictionReason:
            self._evicted.labels(reason.value)
        for outcome in PreemptionOutcome:
            self._preemptions.labels(outcome.value)
        self._faults = Counter(
            "linkwise_faults",
            "Unforeseen exceptions in the work on one gang, pod or node, by stage.",
            ("stage",),
            registry=registry,
        )
        for stage in Stage:
            # Prometheus sees an increase only if there was a sample before.
            self._faults.labels(stage.value)
        self._responses = Counter(
            "linkwise_extender_responses",
            "Responses to a scheduler, by its verb.",
            ("verb", "result"),
            registry=registry,
        )

    def failed(self, stage: Stage) -> None:
        """Count an unforeseen exception in the work on one unit."""
        self._faults.labels(stage.value).inc()

    def extended(self, verb: str, result: str) -> None:
        """Count a response to a scheduler."""
        self._responses.labels(verb, result).inc()

    def planned(self, seconds: float) -> None:
        """Observe the duration of one scheduling cycle [s]."""
        self._planning.observe(seconds)

    def committed(self, seconds: float, *, conflicts: int) -> None:
        """Observe one commit.

        Args:
            seconds: From the first write to the last response [s].
            conflicts: Pods whose patch was refused.
        """
        self._commits.observe(seconds)
        self._conflicts.inc(conflicts)

    def placed(self, seconds: float) -> None:
        """Observe a placed unit: for how long all of it had waited [s]."""
        self._placement.observe(seconds)

    def evicted(self, pods: int, reason: EvictionReason) -> None:
        """Count evicted pods."""
        self._evicted.labels(reason.value).inc(pods)

    def preempted(self, outcome: PreemptionOutcome) -> None:
        """Count a step of a preemption."""
        self._preemptions.labels(outcome.value).inc()


def show_state(  # noqa: PLR0913 - one for each figure.
    registry: CollectorRegistry,
    *,
    leads: Callable[[], bool],
    gangs: Callable[[], Iterable[Gang]],
    partial: Callable[[], int | None],
    reserved_gpus: Callable[[], int | None],
    unaccounted: Callable[[], int | None],
    unplanned: Callable[[], int | None],
    watch_ages: Callable[[], Mapping[str, float | None]],
) -> None:
    """Register gauges that are computed when metrics are read.

    Args:
        registry: Where they are registered.
        leads: Whether this process leads.
        gangs: All Gangs.
        partial: Gangs of which some members have their GPUs and others wait; None: unknown, since
            this process does not lead.
        reserved_gpus: GPUs that are reserved for members that are being replaced; None as above.
        unaccounted: Nodes whose free GPUs are unknown; None as above.
        unplanned: Pods that exceed the memory budget of their namespaces; None as above.
        watch_ages: Time since the last event of each resource [s].
    """
    Gauges(registry, "linkwise_leader", "1 in the process that leads.", {"": leads})
    Gauges(
        registry,
        "linkwise_partial_gangs",
        "Gangs that lack members: some have their GPUs, others wait for theirs.",
        {"": partial},
    )
    Gauges(
        registry,
        "linkwise_reserved_gpus",
        "GPUs that are reserved for members of running gangs that are being replaced.",
        {"": reserved_gpus},
    )
    Gauges(
        registry,
        "linkwise_unaccounted_nodes",
        "Nodes on which nothing is placed, since the GPUs in use are unknown.",
        {"": unaccounted},
    )
    Gauges(
        registry,
        "linkwise_unplanned_pods",
        "Pods that are not planned, since too much waits in their namespaces.",
        {"": unplanned},
    )
    Gauges(
        registry,
        "linkwise_gangs",
        "Gangs by the phase in their status.",
        lambda: _phases(gangs()) if leads() else {},
        label="phase",
    )
    Gauges(
        registry,
        "linkwise_watch_age_seconds",
        "Since the last event of a watch.",
        watch_ages,
        label="resource",
    )


def _phases(gangs: Iterable[Gang]) -> dict[str, float | None]:
    counted = Count(gang.status.phase or Phase.ASSEMBLING for gang in gangs)
    return {phase.value: counted[phase] for phase in Phase}
