"""The documents of `linkwise topology` for scripts."""

from typing import Literal

from msgspec import UNSET, Struct, UnsetType, field, structs

from linkwise.cluster.nodes.kubelet_policy import CPUManager, TopologyManager
from linkwise.cluster.nodes.machine_record import level_word
from linkwise.cluster.nodes.node import Node
from linkwise.topology.catalogue import Entry
from linkwise.topology.choice import ChoiceMode, ChoiceRequest
from linkwise.topology.explain import Explanation, GPUSet
from linkwise.topology.machine import Machine
from linkwise.topology.table import Table
from linkwise.views.output.document import Document, rounded

NO_LINK = "N-A"
"""The word for a pair whose link is not known, as in a published topology."""


class NIC(Struct, frozen=True):
    """A network card."""

    name: str
    levels: list[str]
    """The PCIe level to each GPU."""


class Kubelet(Struct, frozen=True, kw_only=True):
    """The policies of a node's kubelet, by its agent; null where they are unknown."""

    cpu_manager: CPUManager | None
    topology_manager: TopologyManager | None
    note: str | None
    """What they mean for pods whose GPUs Linkwise chooses; null: nothing."""


class MachineReport(Document, frozen=True, kw_only=True, tag="Machine"):
    """A machine's links and bandwidths."""

    gpus: int
    switched: bool
    class_: str = field(name="class")
    """Shared by machines with equal links."""
    links: list[list[str]]
    """Of each pair: `X`, `NV2`, `PIX`, …"""
    bandwidth: list[list[float]]
    """Of each pair; 0 on the diagonal."""
    unit: Literal["GB/s"] = "GB/s"
    exact: bool
    """False where bandwidths are upper bounds."""
    numa: list[int]
    """Of each GPU."""
    nics: list[NIC]
    model: str | None
    warnings: list[str]
    node: str | UnsetType = UNSET
    """This and the next five: only of a node in a cluster."""
    machine_source: str | UnsetType = UNSET
    """`agent`, `policy`, `gpu-feature-discovery`, `catalogue`, `resource-slices` or
    `cluster-file`."""
    uuids: list[str | None] | UnsetType = UNSET
    """Of each GPU; null where it is not published."""
    unhealthy: list[int] | UnsetType = UNSET
    mismatch: str | UnsetType | None = UNSET
    """How the processes on its GPUs contradict the records of pods, by its agent."""
    kubelet: Kubelet | UnsetType = UNSET


class GPUList(Struct, frozen=True):
    """A set of GPUs."""

    gpus: list[int]
    bandwidth: float | None
    """Null for one GPU."""


class Choice(Document, frozen=True, kw_only=True):
    """The GPUs to take; if there is no such set, `gpus` is null and `reason` gives the reason."""

    gpus: list[int] | None
    reason: str
    bandwidth: float | UnsetType | None = UNSET
    """Null for one GPU."""
    unit: Literal["GB/s"] | UnsetType = UNSET
    mode: ChoiceMode | UnsetType = UNSET
    class_: str | UnsetType = field(default=UNSET, name="class")
    best_possible: float | UnsetType | None = UNSET
    """Of any GPUs."""
    best_free: float | UnsetType | None = UNSET
    """Of the GPUs to choose from."""
    index_order: GPUList | UnsetType | None = UNSET
    """The first free indices."""
    runner_up: GPUList | UnsetType | None = UNSET
    """The second-best set that is no image of the choice under a symmetry of the machine."""
    left: GPUList | UnsetType | None = UNSET
    """The GPUs that stay free."""
    exact: bool | UnsetType = UNSET
    """False where bandwidths are upper bounds."""
    warnings: list[str] | UnsetType = UNSET


class CatalogueEntry(Struct, frozen=True):
    """A machine of the catalogue."""

    name: str
    gpus: int
    switched: bool
    title: str
    source: str


class MachineList(Document, frozen=True, kw_only=True):
    """The machines of the catalogue."""

    items: list[CatalogueEntry]


def machine_report(machine: Machine, bandwidths: Table) -> MachineReport:
    """Return a machine's links and bandwidths."""
    return MachineReport(
        gpus=machine.n,
        switched=machine.switched,
        class_=bandwidths.key,
        links=links(machine),
        bandwidth=pairs(bandwidths),
        exact=bandwidths.exact,
        numa=[gpu.numa for gpu in machine.gpus],
        nics=[NIC(nic.name, [level_word(level) for level in nic.levels]) for nic in machine.nics],
        model=machine.model,
        warnings=list(machine.warnings),
    )


def node_report(node: Node, machine: Machine, bandwidths: Table) -> MachineReport:
    """Return the machine of a node, with its source and the state of its GPUs."""
    return structs.replace(
        machine_report(machine, bandwidths),
        node=node.name,
        machine_source=node.machine_source.value,
        uuids=[card.uuid for card in node.cards],
        unhealthy=[i for i, card in enumerate(node.cards) if not card.healthy],
        mismatch=node.mismatch,
        kubelet=kubelet_report(node),
    )


def kubelet_report(node: Node) -> Kubelet:
    """Return the policies of a node's kubelet."""
    policy = node.kubelet
    return Kubelet(
        cpu_manager=policy.cpu_manager,
        topology_manager=policy.topology_manager,
        note=policy.numa_note,
    )


def choice(
    machine: Machine, bandwidths: Table, request: ChoiceRequest, explanation: Explanation
) -> Choice:
    """Return the GPUs to take, and the alternatives."""
    if explanation.chosen is None:
        return Choice(gpus=None, reason=explanation.reason)
    return Choice(
        gpus=list(explanation.chosen.gpus),
        bandwidth=rounded(explanation.chosen.bandwidth),
        unit="GB/s",
        mode=request.mode,
        class_=bandwidths.key,
        best_possible=rounded(explanation.best_possible),
        best_free=rounded(explanation.best_free),
        index_order=_set(explanation.index_order),
        runner_up=_set(explanation.runner_up),
        left=_set(explanation.free_after),
        exact=explanation.exact,
        reason=explanation.reason,
        warnings=list(machine.warnings),
    )


def machine_list(entries: list[Entry]) -> MachineList:
    """Return the catalogue."""
    return MachineList(
        items=[
            CatalogueEntry(
                entry.name, entry.machine.n, entry.machine.switched, entry.title, entry.source
            )
            for entry in entries
        ]
    )


def links(machine: Machine) -> list[list[str]]:
    """Return the link of each pair of GPUs as a word, shape (n, n)."""
    return [[_link(machine, i, j) for j in range(machine.n)] for i in range(machine.n)]


def pairs(bandwidths: Table) -> list[list[float]]:
    """Return the bandwidth of each pair [GB/s], shape (n, n), 0 on the diagonal."""
    n = bandwidths.n
    return [
        [round(bandwidths.bandwidth(1 << i | 1 << j), 1) if i != j else 0.0 for j in range(n)]
        for i in range(n)
    ]


def _link(machine: Machine, i: int, j: int) -> str:
    if i == j:
        return "X"
    count = machine.links[i][j]
    return f"NV{count}" if count else level_word(machine.levels[i][j])


def _set(gpus: GPUSet | None) -> GPUList | None:
    return GPUList(list(gpus.gpus), rounded(gpus.bandwidth)) if gpus else None
