"""The rows of the map of nodes, as the scripts of both pages get them."""

from base64 import urlsafe_b64encode
from collections.abc import Iterator, Sequence
from gzip import compress
from zlib import crc32

import msgspec
from msgspec import Struct

from linkwise.cluster.finding import printable
from linkwise.views.analysis.fleet import FleetNode
from linkwise.views.output.printer import sentence
from linkwise.views.render.page.occupancy import COLOURS


class HolderRow(Struct, frozen=True, array_like=True):
    """A pod that holds GPUs of a node."""

    pod: str
    """`namespace/name`."""
    gang: str
    """`namespace/name`; empty for a pod on its own."""
    gpus: tuple[int, ...]
    counted: int
    """The number of whole GPUs that NVIDIA's plugin chose."""
    amount: str
    colour: int
    """Of its gang, or of the pod."""


class NodeRow(Struct, frozen=True, array_like=True):
    """A node of the map, as the page gets it."""

    name: str
    pool: str
    model: str
    mode: str
    domain: str
    """The nearest network domain; empty where no label says it."""
    states: str
    """A character for each GPU, as in `linkwise.views.analysis.fleet`."""
    used: int
    """The part of its GPUs that is given out [%]."""
    free: int
    stranded: int
    """Free GPUs beside taken ones."""
    closed: bool
    """It takes no pods now."""
    problems: tuple[str, ...]
    holders: tuple[HolderRow, ...]


class NodeDetails(Struct, frozen=True):
    """What a page in a file shows of one node beside its row."""

    drawing: int | None
    """The number of its drawing; None: it has no GPUs to draw."""
    links: tuple[float, float] | None
    """Bandwidth of its free GPUs, and of as many GPUs of an empty machine at best [GB/s]."""
    notes: tuple[str, ...]
    placed: tuple[str, ...]
    """The pods, `namespace/name`, that a simulation placed."""


def colour_of(holder: str) -> int:
    """Return the colour of a gang, or of a pod on its own, by its name: the same on every page."""
    return crc32(holder.encode(errors="surrogatepass")) % COLOURS


def node_row(node: FleetNode, domains: Sequence[str] = ()) -> NodeRow:
    """Return the row of a node.

    Args:
        node: A node of the fleet.
        domains: The labels of network domains, the nearest first.
    """
    labels = node.node.labels
    return NodeRow(
        name=node.node.name,
        pool=node.pool,
        model=node.model,
        mode=node.node.mode.value,
        domain=next((labels[key] for key in domains if key in labels), ""),
        states=node.states,
        used=node.used,
        free=node.free,
        stranded=node.stranded,
        closed=node.closed,
        problems=node.problems,
        holders=tuple(_holders(node)),
    )


def _holders(node: FleetNode) -> Iterator[HolderRow]:
    for pod in node.pods:
        name = f"{pod.namespace}/{pod.name}"
        gang = f"{pod.namespace}/{pod.gang}" if pod.gang else ""
        yield HolderRow(name, gang, pod.gpus, pod.counted, pod.amount, colour_of(gang or name))


def fleet_data(nodes: Sequence[FleetNode], drawings: Sequence[int | None]) -> str:
    """Return the rows and details of the fleet as compressed JSON, in base64 for addresses.

    Args:
        nodes: The fleet.
        drawings: The number of each node's drawing; None: it has no GPUs to draw.
    """
    details = [_details(node, drawing) for node, drawing in zip(nodes, drawings, strict=True)]
    document = msgspec.to_builtins({"rows": list(map(node_row, nodes)), "details": details})
    return urlsafe_b64encode(compress(msgspec.json.encode(_printable(document)), mtime=0)).decode()


def _details(node: FleetNode, drawing: int | None) -> NodeDetails:
    placed = tuple(f"{pod.namespace}/{pod.name}" for pod in node.pods if pod.is_new)
    return NodeDetails(drawing, node.links, tuple(map(sentence, node.notes)), placed)


def _printable(value: object) -> object:
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return {key: _printable(each) for key, each in value.items()}
    return [_printable(each) for each in value] if isinstance(value, list | tuple) else value
