"""Counters and histograms of placement, and what is measured at an interval."""

from collections.abc import Iterable, Mapping
from enum import StrEnum

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from linkwise.cluster.account.gpu_amounts import GPUClass
from linkwise.cluster.account.slots import SlotGroup

_PLANNING = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5)
_COMMIT = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)
_PLACEMENT = (0.05, 0.1, 0.2, 0.5, 1, 5, 30, 60, 300, 600, 3600, 6 * 3600)
_OF_SETS = ("pool", "model", "size")
_SETS = {
    "": "Disjoint sets of free GPUs on one node.",
    "_fastest": "Those of the best bandwidth of their machine.",
    "_together": "Sets that as many free GPUs would make on as few nodes as possible.",
}
"""Gauges of free sets, by the end of their names."""
_NAMESPACES_MAX = 1000
"""Namespaces with series of their own; a series of a counter is never removed."""
_OTHERS = "_others"
"""For the other namespaces; no namespace has this name."""
_FLEETS_MAX = 100
"""Pools and models with series of their own, since a node may state any."""

_MODEL_MAX = 63
"""Longest name of a model [characters]; labels of nodes are no longer."""


class WaitReason(StrEnum):
    """Why a unit waits for GPUs."""

    INCOMPLETE = "incomplete"
    """Pods are missing, or it may not be placed yet."""
    QUEUED = "queued"
    """It is planned next."""
    CAPACITY = "capacity"
    """It does not fit until GPUs are free, or nodes are added."""
    RETRY = "retry"
    """It is planned again soon: it settles, or planning or writing it failed."""


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
    FENCE = "fence"
    """Keep the GPUs of claims nodes from claims of others."""


class EvictionReason(StrEnum):
    """Why pods were evicted."""

    UNBOUND = "unbound"
    """A member of their gang could not be bound."""
    FAULT = "fault"
    """A GPU or a node under their gang failed."""
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
    """Counters and histograms of decisions, and what is measured at an interval.

    No value that a user chooses becomes a label, except for at most 1,000 namespaces.
    """

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
        self._claim_conflicts = Counter(
            "linkwise_claim_conflicts",
            "Resource claims of others under the name of a claim of Linkwise.",
            registry=registry,
        )
        self._evicted = Counter(
            "linkwise_evicted_pods",
            "Pods evicted to be placed again, by the reason.",
            ("reason",),
            registry=registry,
        )
        self._moved = Counter(
            "linkwise_moved_gangs",
            "Running gangs that were evicted as a whole because of a fault under them.",
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
        self._gpu_seconds = Counter(
            "linkwise_gpu_seconds",
            "GPUs that pods of a namespace held, times seconds; a share is a part of a GPU.",
            ("pod_namespace", "resource", "share"),
            registry=registry,
        )
        self._namespaces: set[str] = set()
        """Those with series."""
        self._waiting_seconds = Counter(
            "linkwise_waiting_seconds",
            "Units that waited for GPUs, times seconds, by reason.",
            ("reason",),
            registry=registry,
        )
        self._waiting = Gauge(
            "linkwise_waiting_units",
            "Gangs and pods that wait for GPUs, by reason.",
            ("reason",),
            registry=registry,
        )
        for why in WaitReason:
            self._waiting_seconds.labels(why.value)
        self._free_gpus = Gauge(
            "linkwise_free_gpus",
            "Free whole GPUs.",
            ("pool", "model"),
            registry=registry,
        )
        self._sets = {
            name: Gauge(f"linkwise_free_gpu_sets{name}", documentation, _OF_SETS, registry=registry)
            for name, documentation in _SETS.items()
        }
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

    def used(self, amounts: Mapping[GPUClass, float], seconds: float) -> None:
        """Count GPUs that namespaces have held for some time [s].

        Series also begin at 0, since Prometheus sees an increase only after a sample.
        """
        for (namespace, resource, share), gpus in amounts.items():
            if len(self._namespaces) < _NAMESPACES_MAX:
                self._namespaces.add(namespace)
            name = namespace if namespace in self._namespaces else _OTHERS
            self._gpu_seconds.labels(name, resource, share).inc(gpus * seconds)

    def waited(self, units: Mapping[WaitReason, int], seconds: float) -> None:
        """Count units that have waited for some time [s], and show how many wait now."""
        for reason in WaitReason:
            number = units.get(reason, 0)
            self._waiting_seconds.labels(reason.value).inc(number * seconds)
            self._waiting.labels(reason.value).set(number)

    def show_slots(self, groups: Iterable[SlotGroup]) -> None:
        """Show the free sets of now, and no longer those of before."""
        for gauge in (self._free_gpus, *self._sets.values()):
            gauge.clear()
        fleets = set[tuple[str, str]]()
        for group in groups:
            fleet = group.pool or "", (group.model or "")[:_MODEL_MAX]
            if len(fleets) < _FLEETS_MAX:
                fleets.add(fleet)
            pool, model = fleet if fleet in fleets else (_OTHERS, _OTHERS)
            self._free_gpus.labels(pool, model).inc(group.free)
            for sets in group.sets:
                counted = sets.total, sets.fastest, sets.together
                for gauge, number in zip(self._sets.values(), counted, strict=True):
                    if number is not None:
                        gauge.labels(pool, model, str(sets.size)).inc(number)

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

    def claim_conflict(self) -> None:
        """Count a claim of others under the name of one of ours."""
        self._claim_conflicts.inc()

    def evicted(self, pods: int, reason: EvictionReason) -> None:
        """Count evicted pods."""
        self._evicted.labels(reason.value).inc(pods)

    def preempted(self, outcome: PreemptionOutcome) -> None:
        """Count a step of a preemption."""
        self._preemptions.labels(outcome.value).inc()

    def moved(self) -> None:
        """Count a gang that was evicted because of a fault."""
        self._moved.inc()
