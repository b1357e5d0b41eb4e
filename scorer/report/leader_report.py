"""The leader's report of gangs, GPUs and nodes, and the gauges that show it on `/metrics`.

A gauge is one row of `_GAUGES`: its name, its help and how it is read from a report.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from linkwise.cluster.account.node_ledger import NodeLedger
from linkwise.planning.gang.crd import Gang, Phase


@dataclass(frozen=True, slots=True)
class NodesReport:
    """What the leader knows of nodes once its watches have synced."""

    ledgers: Collection[NodeLedger]
    """All nodes."""
    unfenced: Mapping[str, str]
    """By claims node: why claims of others may get its GPUs."""
    taint_rules: int
    """DeviceTaintRules of Linkwise that exist."""

    @property
    def unaccounted(self) -> int:
        """Nodes whose free GPUs are unknown."""
        return sum(ledger.unaccounted is not None for ledger in self.ledgers)

    @property
    def incomplete(self) -> int:
        """Claims nodes that lack slices of the driver."""
        pools = (ledger.node.pool for ledger in self.ledgers)
        return sum(pool is not None and pool.missing is not None for pool in pools)


@dataclass(frozen=True, slots=True)
class LeaderReport:
    """What the process that leads knows at one moment."""

    gangs: Collection[Gang]
    partial: int
    """Gangs of which some members have their GPUs and others wait."""
    faulty: int
    """Running gangs with a fault under them."""
    reserved_gpus: Mapping[str, int]
    """GPUs that are reserved, by the purpose of the reservation."""
    claim_problems: Mapping[str, int]
    """Pods whose claims are not as planned, by the reason of their Event."""
    unplanned: int
    """Pods that exceed the memory budget of their namespaces."""
    watch_ages: Mapping[str, float | None]
    """Time since the last event of each resource [s]."""
    nodes: NodesReport | None
    """None: the watches have not synced."""


_Read = Callable[[LeaderReport], float | Mapping[str, float | None] | None]


class _Row(NamedTuple):
    name: str
    documentation: str
    read: _Read
    """Returns the value, or one for each value of the label; None gives no sample, so that alerts
    on absence work."""
    label: str = ""
    idle: float | None = None
    """The value in a process that does not lead."""


def _of_nodes(read: Callable[[NodesReport], float]) -> _Read:
    return lambda report: read(report.nodes) if report.nodes else None


def _phases(report: LeaderReport) -> Mapping[str, float]:
    counted = Counter(gang.status.phase or Phase.ASSEMBLING for gang in report.gangs)
    return {phase.value: counted[phase] for phase in Phase}


_GAUGES = (
    _Row("linkwise_leader", "1 in the process that leads.", lambda _: 1, idle=0),
    _Row(
        "linkwise_partial_gangs",
        "Gangs that lack members: some have their GPUs, others wait for theirs.",
        lambda report: report.partial,
    ),
    _Row(
        "linkwise_reserved_gpus",
        "GPUs that are reserved for lost members of running gangs, and for units for which others "
        "are evicted.",
        lambda report: report.reserved_gpus,
        label="purpose",
    ),
    _Row(
        "linkwise_faulty_gangs",
        "Running gangs with an unhealthy GPU, on a lost node, or with slower links than planned.",
        lambda report: report.faulty,
    ),
    _Row(
        "linkwise_unaccounted_nodes",
        "Nodes on which nothing is placed, since the GPUs in use are unknown.",
        _of_nodes(lambda nodes: nodes.unaccounted),
    ),
    _Row(
        "linkwise_unfenced_nodes",
        "Claims nodes whose GPUs claims of others may get.",
        _of_nodes(lambda nodes: len(nodes.unfenced)),
    ),
    _Row(
        "linkwise_taint_rules",
        "DeviceTaintRules of Linkwise that exist.",
        _of_nodes(lambda nodes: nodes.taint_rules),
    ),
    _Row(
        "linkwise_incomplete_nodes",
        "Claims nodes on which nothing new is placed, since the driver's slices are incomplete.",
        _of_nodes(lambda nodes: nodes.incomplete),
    ),
    _Row(
        "linkwise_claim_problems",
        "Pods whose claims hold other GPUs than planned, or are used by another pod.",
        lambda report: report.claim_problems,
        label="reason",
    ),
    _Row(
        "linkwise_unplanned_pods",
        "Pods that are not planned, since too much waits in their namespaces.",
        lambda report: report.unplanned,
    ),
    _Row("linkwise_gangs", "Gangs by the phase in their status.", _phases, label="phase"),
    _Row(
        "linkwise_watch_age_seconds",
        "Since the last event of a watch.",
        lambda report: report.watch_ages,
        label="resource",
    ),
)


class LeaderGauges(Collector):
    """The gauges of the leader, all from one report for each time that metrics are read."""

    def __init__(
        self, registry: CollectorRegistry, report: Callable[[], LeaderReport | None]
    ) -> None:
        """Register the gauges.

        Args:
            registry: Where they are registered.
            report: Returns the report; None: this process does not lead.
        """
        self._report = report
        registry.register(self)

    def collect(self) -> Iterable[Metric]:
        """Return the present samples."""
        report = self._report()
        return [_family(row, row.read(report) if report else row.idle) for row in _GAUGES]


def _family(row: _Row, value: float | Mapping[str, float | None] | None) -> GaugeMetricFamily:
    family = GaugeMetricFamily(
        row.name, row.documentation, labels=(row.label,) if row.label else ()
    )
    samples = value if isinstance(value, Mapping) else {"": value}
    for key, sample in samples.items():
        if sample is not None:
            family.add_metric((key,) if row.label else (), sample)
    return family
