"""What metrics tell of placement: gangs, how long they took, and what stands in their way."""

from collections import Counter as Count
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from runtime.process.metrics import Gauges
from scorer.gang.crd import Gang, Phase

_PLANNING = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5)
_COMMIT = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)
_PLACING = (0.05, 0.1, 0.2, 0.5, 1, 5, 30, 60, 300, 600, 3600, 6 * 3600)


class Stage(StrEnum):
    """What is done with one unit: a gang, a pod on its own, or a node that is reported."""

    ASSEMBLE = "assemble"
    """Put pods together."""
    SIZE = "size"
    """Ask how many members there are to be."""
    PLAN = "plan"
    RECORD = "record"
    """Write the plan into the Gang."""
    COMMIT = "commit"
    """Write on the pods."""
    TRACK = "track"
    """See whether its pods are bound."""
    EVICT = "evict"
    REPORT = "report"
    """Write the Gang's status, and Events."""
    BIND = "bind"


class Metrics:
    """Counters and times of decisions. Nothing that a user chooses becomes a label."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._planning = Histogram(
            "linkwise_planning_duration_seconds",
            "One round of planning: until enough is on its way, or for a moment.",
            registry=registry,
            buckets=_PLANNING,
        )
        self._commits = Histogram(
            "linkwise_commit_duration_seconds",
            "From the first write of a plan on a pod to the last answer.",
            registry=registry,
            buckets=_COMMIT,
        )
        self._placing = Histogram(
            "linkwise_placement_duration_seconds",
            "From when a gang or pod was complete until all of it was let go to its nodes.",
            registry=registry,
            buckets=_PLACING,
        )
        self._conflicts = Counter(
            "linkwise_placement_conflicts",
            "Pods that could not be given what was planned: they changed meanwhile.",
            registry=registry,
        )
        self._evicted = Counter(
            "linkwise_evicted_pods",
            "Pods evicted, to be placed again.",
            registry=registry,
        )
        self._faults = Counter(
            "linkwise_faults",
            "Unforeseen exceptions in the work on one gang, pod or node, by stage.",
            ("stage",),
            registry=registry,
        )
        for stage in Stage:
            # An increase shows only where there was a sample before.
            self._faults.labels(stage.value)
        self._extended = Counter(
            "linkwise_extender_responses",
            "What a scheduler was answered, by its verb.",
            ("verb", "result"),
            registry=registry,
        )

    def failed(self, stage: Stage) -> None:
        """Note an unforeseen exception in the work on one unit."""
        self._faults.labels(stage.value).inc()

    def extended(self, verb: str, result: str) -> None:
        """Note what a scheduler was answered."""
        self._extended.labels(verb, result).inc()

    def planned(self, seconds: float) -> None:
        """Note one round of planning [s]."""
        self._planning.observe(seconds)

    def committed(self, seconds: float, *, conflicts: int) -> None:
        """Note one plan that was written on its pods.

        Args:
            seconds: From the first write to the last answer [s].
            conflicts: How many pods could not be given what was planned.
        """
        self._commits.observe(seconds)
        self._conflicts.inc(conflicts)

    def placed(self, seconds: float) -> None:
        """Note a gang or pod that was let go, and for how long it had waited, complete [s]."""
        self._placing.observe(seconds)

    def evicted(self, pods: int) -> None:
        """Note so many pods evicted."""
        self._evicted.inc(pods)


def show_state(  # noqa: PLR0913 - one for each figure.
    registry: CollectorRegistry,
    *,
    leads: Callable[[], bool],
    gangs: Callable[[], Iterable[Gang]],
    partial: Callable[[], int | None],
    unaccounted: Callable[[], int | None],
    left_out: Callable[[], int | None],
    watch_ages: Callable[[], Mapping[str, float | None]],
) -> None:
    """Show how things stand whenever metrics are read; who does not lead knows little.

    Args:
        registry: Where.
        leads: Whether this process decides.
        gangs: All that there are.
        partial: Gangs of which some members have their GPUs and others wait; None where nobody
            looks.
        unaccounted: Nodes of which nobody knows what is free; None where nobody looks.
        left_out: Pods that are not planned, since too much waits in their namespaces; None as
            above.
        watch_ages: For how long nothing was heard of each resource [s].
    """
    Gauges(registry, "linkwise_leader", "1 in the process that decides.", {"": leads})
    Gauges(
        registry,
        "linkwise_partial_gangs",
        "Gangs that lack members: some have their GPUs, others wait for theirs.",
        {"": partial},
    )
    Gauges(
        registry,
        "linkwise_unaccounted_nodes",
        "Nodes on which nothing is placed, since nobody knows which GPUs are in use.",
        {"": unaccounted},
    )
    Gauges(
        registry,
        "linkwise_unplanned_pods",
        "Pods that are not planned, since too much waits in their namespaces.",
        {"": left_out},
    )
    _Labelled(
        registry,
        "linkwise_gangs",
        "Gangs, as people are told of them.",
        "phase",
        lambda: _phases(gangs()) if leads() else {},
    )
    _Labelled(
        registry,
        "linkwise_watch_age_seconds",
        "Since a watch was last heard of.",
        "resource",
        watch_ages,
    )


def _phases(gangs: Iterable[Gang]) -> dict[str, float | None]:
    counted = Count(gang.status.phase or Phase.ASSEMBLING for gang in gangs)
    return {phase.value: counted[phase] for phase in Phase}


class _Labelled(Collector):
    """A gauge whose labels come and go."""

    def __init__(
        self,
        registry: CollectorRegistry,
        name: str,
        documentation: str,
        label: str,
        values: Callable[[], Mapping[str, float | None]],
    ) -> None:
        self._name, self._documentation, self._label = name, documentation, label
        self._values = values
        registry.register(self)

    def collect(self) -> Iterable[Metric]:
        """Return the samples of this moment."""
        family = GaugeMetricFamily(self._name, self._documentation, labels=(self._label,))
        for key, value in self._values().items():
            if value is not None:
                family.add_metric((key,), value)
        return (family,)
