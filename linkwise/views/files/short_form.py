"""Reads `kind: Cluster`, the short form of a cluster for people, as Node objects."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Literal, TypeAlias

from msgspec import convert
from pydantic import Field

from linkwise.cluster import keys
from linkwise.cluster.account.gpu_usage import LedgerError
from linkwise.cluster.account.node_ledger import Holding, NodeLedger
from linkwise.cluster.allocations.gpus import Exact, GPUShare
from linkwise.cluster.mode import NodeMode, PackingStrategy, counting_resource
from linkwise.cluster.nodes.node import MachineSource, Node
from linkwise.cluster.nodes.node_reader import read_node
from linkwise.cluster.nodes.node_resources import NodeError, NodeObject
from linkwise.manifest.value import InputError, Value
from linkwise.policy.wire import Wire, read_value
from linkwise.topology.machine import Machine

MAX_NODES = 20_000
"""Kubernetes is tested with 5,000."""

OTHERS = "others"
"""Namespace of the pods that hold what a short form marks as used."""

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LONGEST_NAME = 253
"""Kubernetes names nodes as DNS names subdomains (RFC 1123)."""

Quantity: TypeAlias = int | float | str
Share: TypeAlias = Annotated[int, Field(ge=1, le=4096)]


class _Taint(Wire):
    key: str
    value: str = ""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]


class _Used(Wire):
    gpu: Annotated[int, Field(ge=0)]
    mem: Share | None = None
    core: Share | None = None


class _Line(Wire):
    """One item of `nodes`: a node, or several equal ones."""

    name: Annotated[str, Field(min_length=1)]
    count: Annotated[int, Field(ge=1, le=MAX_NODES)] | None = None
    machine: str | None = None
    mode: NodeMode = NodeMode.DEFAULT
    # Large defaults, so that a file about GPUs need not name other resources.
    cpu: Quantity = 256
    memory: Quantity = "4Ti"
    pods: Annotated[int, Field(ge=1)] = 110
    gpu_memory: Share | None = None
    replicas: Annotated[int, Field(ge=2)] | None = None
    labels: dict[str, str] = Field(default_factory=dict)
    taints: tuple[_Taint, ...] = ()
    used: tuple[_Used, ...] = ()


class _Document(Wire):
    api_version: str
    kind: str
    metadata: dict[str, object] = Field(default_factory=dict)
    nodes: tuple[_Line, ...]


@dataclass(frozen=True, slots=True)
class ShortNode:
    """A node of a short form, and its used GPUs."""

    node: Node
    holdings: tuple[Holding, ...]
    value: Value
    """Its place in the file."""


def is_short_form(document: Value) -> bool:
    """Return whether an object is a cluster in the short form."""
    return document.need("kind").plain == "Cluster" and (
        document.need("apiVersion").plain == keys.API_VERSION
    )


_UNSAID = {"ephemeral-storage": "1Pi"}
"""Every node has some, and a short form says nothing of it: it counts as enough."""


def read_short_form(
    document: Value,
    machine_of: Callable[[str], Machine],
    placement: PackingStrategy = PackingStrategy.BINPACK,
) -> Iterator[ShortNode]:
    """Yield the nodes of a short form.

    Args:
        document: The short form.
        machine_of: Finds a machine by its name in the catalogue or by its file.
        placement: Layout of shares on a node without a placement label.

    Raises:
        InputError: A field is wrong; with its line.
    """
    read, problems = read_value(_Document, document.plain, document.document.place, document.path)
    if read is None:
        first = problems[0]
        more = f" ({len(problems) - 1} more after it)" if problems[1:] else ""
        where = f"{document.file}:{first.line}: {first.path}"
        raise InputError(f"{where}: {first.message}; {first.fix}.{more}")
    for line, value in zip(read.nodes, document.listed("nodes"), strict=True):
        yield from _nodes(line, value, machine_of, placement)


def _nodes(
    line: _Line, value: Value, machine_of: Callable[[str], Machine], placement: PackingStrategy
) -> Iterator[ShortNode]:
    try:
        machine = machine_of(line.machine) if line.machine else None
    except InputError as error:
        raise value.at("machine").error(str(error)) from None
    if machine is None and (line.used or line.mode is not NodeMode.DEFAULT):
        raise value.error(f"a node of mode {line.mode} has GPUs; add its machine.")
    resources = _resources(line, machine, value) if machine else {}
    names = [line.name] if line.count is None else [f"{line.name}-{i}" for i in range(line.count)]
    for name in names:
        if not _NAME.fullmatch(name) or len(name) > _LONGEST_NAME:
            problem = f"a node cannot be named {name!r}; write lower-case letters, digits, - and ."
            raise value.at("name").error(f"{problem}, letters or digits first and last.")
        try:
            raw = _object(line, name, resources)
            node = read_node(raw, machine=machine, placement=placement)
            if node.machine_known:
                node = replace(node, machine_source=MachineSource.FILE)
        except NodeError as error:
            raise value.error(f"{error}.") from None
        yield ShortNode(node, tuple(_holdings(line, node, value)), value)


def _object(line: _Line, name: str, resources: dict[str, Quantity]) -> NodeObject:
    """Return the Node that a kubelet would register."""
    labels = {keys.HOSTNAME: name, **line.labels}
    if line.mode is not NodeMode.DEFAULT:
        labels |= dict.fromkeys(keys.MODE_LABELS, line.mode.value)
    if line.replicas is not None:
        labels[keys.GFD_REPLICAS] = str(line.replicas)
    own = {"cpu": line.cpu, "memory": line.memory, "pods": line.pods, **_UNSAID}
    taints = [{"key": t.key, "value": t.value, "effect": t.effect} for t in line.taints]
    return convert(
        {
            "metadata": {"name": name, "labels": labels},
            "spec": {"taints": taints},
            "status": {"allocatable": {**own, **resources}},
        },
        NodeObject,
    )


def _resources(line: _Line, machine: Machine, value: Value) -> dict[str, Quantity]:
    """Return the GPU resources that the node offers in its mode."""
    mode = line.mode
    if mode.shares_memory:
        each = (line.gpu_memory,) * machine.n if line.gpu_memory else machine.memory
        if not each:
            raise value.error(
                "gpuMemory is missing: the memory of the cards is not known; add it [GiB]."
            )
        core = {keys.GPU_CORE: 100 * machine.n} if mode.shares_compute else {}
        return {keys.GPU_MEM: sum(each), keys.GPU_COUNT: machine.n, **core}
    if mode is NodeMode.TIMESLICE:
        if line.replicas is None:
            raise value.error("replicas is missing: how many pods may share one GPU; add it.")
        return {keys.NVIDIA_GPU_SHARED: machine.n * line.replicas}
    counted = counting_resource(mode, line.labels)
    return {counted: machine.n} if counted else {}


def _holdings(line: _Line, node: Node, value: Value) -> Iterator[Holding]:
    for k, used in enumerate(line.used):
        place = value.at(f"used[{k}]")
        if used.gpu >= len(node.cards):
            raise place.error(
                f"{node.name} has no GPU {used.gpu}; write one below {len(node.cards)}."
            )
        if used.core and not used.mem:
            raise place.error("core cannot be used alone; add mem [GiB].")
        if used.mem and not node.mode.shares_memory:
            raise place.error(f"a node of mode {node.mode} gives out whole GPUs; leave mem out.")
        if used.core and not node.mode.shares_compute:
            raise place.error(f"a node of mode {node.mode} gives out no compute; leave core out.")
        gpus = Exact((GPUShare(used.gpu, mem=used.mem, core=used.core),))
        yield Holding(f"{OTHERS}/{node.name}-{k}", f"{node.name} used[{k}]", gpus)


def with_holdings(ledger: NodeLedger, short: ShortNode) -> NodeLedger:
    """Return the ledger of a node with what its short form says is used.

    Raises:
        InputError: The node does not have it; with its line.
    """
    for holding in short.holdings:
        try:
            ledger = ledger.hold(holding)
        except LedgerError as error:
            raise short.value.at("used").error(f"{error}.") from None
    return ledger
