"""Views of nodes and gangs for the inspection API.

`GET /v1/nodes` and `GET /v1/gangs` return them as JSON. Fields may be added, but never changed.
"""

from collections.abc import Iterable, Iterator

from msgspec import Struct

from linkwise.cluster.account.node_ledger import NodeLedger
from linkwise.cluster.allocations.gpus import Counted
from linkwise.planning.gang.crd import Gang, Phase
from linkwise.planning.gang.crd_plan import GangPlan
from linkwise.planning.gang.unit import Unit
from linkwise.planning.placement.state.snapshot import Snapshot


class HolderView(Struct, frozen=True):
    """A pod with a GPU, or with a part of it."""

    pod: str
    """`namespace/name`."""
    uid: str
    gang: str | None
    """`namespace/name`."""
    mem: int | None
    """[GiB]; null: the whole GPU, or one of its replicas."""
    core: int | None
    """[%]"""


class GPUView(Struct, frozen=True):
    """One GPU."""

    i: int
    uuid: str | None
    healthy: bool
    cordoned: bool
    holders: tuple[HolderView, ...]


class CountedView(Struct, frozen=True):
    """A pod whose GPUs are chosen by NVIDIA's plugin."""

    pod: str
    gpus: int


class NodeView(Struct, frozen=True):
    """One node."""

    name: str
    mode: str
    ready: bool
    unschedulable: bool
    unaccounted: str | None
    """Why no pod is placed here; null: all GPUs are accounted."""
    gpus: tuple[GPUView, ...]
    counted: tuple[CountedView, ...]
    gpus_free: int
    """Free GPUs, chosen by Linkwise or by NVIDIA's plugin; 0 if unaccounted."""
    pool: str | None
    """Of NVIDIA's DRA driver, on a claims node; null: it is no claims node."""
    missing: str | None
    """Why nothing new is placed in this pool, such as missing slices; null: it is complete."""


class NodesView(Struct, frozen=True):
    """The response of `/v1/nodes`."""

    term: int
    nodes: tuple[NodeView, ...]


class WaitingView(Struct, frozen=True):
    """A gang or a pod that waits."""

    namespace: str
    name: str
    gang: bool
    pods: tuple[str, ...]
    present: int
    needed: int | None
    since: str
    priority: int
    reason: str


class GangView(Struct, frozen=True):
    """A Gang object."""

    namespace: str
    name: str
    object: str
    phase: str
    members: str
    reason: str
    plan: GangPlan | None


class GangsView(Struct, frozen=True):
    """The response of `/v1/gangs`."""

    term: int
    gangs: tuple[GangView, ...]
    waiting: tuple[WaitingView, ...]
    """Gangs and pods without a gang, in no order."""


def view_nodes(snapshot: Snapshot, term: int, name: str | None = None) -> NodesView:
    """Return nodes with GPUs, or with pods that have GPUs.

    Args:
        snapshot: The cluster.
        term: The leader's.
        name: Of one node; None: all.
    """
    chosen = [node for node in snapshot.nodes if node.has_gpus and name in {None, node.node.name}]
    return NodesView(term, tuple(map(_node, chosen)))


def view_gangs(
    gangs: Iterable[Gang],
    waiting: Iterable[tuple[Unit, str]],
    term: int,
    namespace: str | None = None,
) -> GangsView:
    """Return gangs, and units that wait.

    Args:
        gangs: All Gangs.
        waiting: All units that wait, each with its reason.
        term: The leader's.
        namespace: Of gangs and units; None: all.
    """
    return GangsView(
        term,
        tuple(_gang(gang) for gang in gangs if namespace in {None, gang.metadata.namespace}),
        tuple(
            _waiting(unit, reason)
            for unit, reason in waiting
            if namespace in {None, unit.key.namespace}
        ),
    )


def _node(ledger: NodeLedger) -> NodeView:
    node = ledger.node
    holders: list[list[HolderView]] = [[] for _ in node.cards]
    for i, holder in _holders(ledger):
        holders[i].append(holder)
    return NodeView(
        name=node.name,
        mode=node.mode.value,
        ready=node.ready,
        unschedulable=node.unschedulable,
        unaccounted=ledger.unaccounted,
        gpus=tuple(
            GPUView(i, card.uuid, card.healthy, card.is_closed, tuple(holders[i]))
            for i, card in enumerate(node.cards)
        ),
        counted=tuple(
            CountedView(holding.pod, holding.gpus.number)
            for holding in ledger.holdings.values()
            if isinstance(holding.gpus, Counted)
        ),
        gpus_free=ledger.gpus_free,
        pool=node.pool.name if node.pool else None,
        missing=node.pool.missing if node.pool else None,
    )


def _holders(ledger: NodeLedger) -> Iterator[tuple[int, HolderView]]:
    for holding in ledger.holdings.values():
        for share in holding.gpus.shares:
            holder = HolderView(holding.pod, holding.uid, holding.gang, share.mem, share.core)
            yield share.i, holder


def _gang(gang: Gang) -> GangView:
    status = gang.status
    return GangView(
        namespace=gang.metadata.namespace,
        name=gang.spec.gang,
        object=gang.metadata.name,
        phase=(status.phase or Phase.ASSEMBLING).value,
        members=status.members,
        reason=status.reason,
        plan=gang.spec.plan,
    )


def _waiting(unit: Unit, reason: str) -> WaitingView:
    return WaitingView(
        namespace=unit.key.namespace,
        name=unit.key.name,
        gang=unit.is_gang,
        pods=tuple(pod.name for pod in unit.waiting),
        present=unit.present,
        needed=unit.needed,
        since=unit.since,
        priority=unit.priority,
        reason=reason,
    )
