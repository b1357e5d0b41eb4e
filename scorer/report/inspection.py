"""What people may look at: every node with who has which GPU, and everything that waits or ran.

`GET /v1/nodes` and `GET /v1/gangs` answer these as JSON; fields may be added, never changed.
"""

from collections.abc import Iterable, Iterator

from msgspec import Struct

from cluster.node_ledger import NodeLedger
from scorer.gang.crd import Gang, GangPlan, Phase
from scorer.gang.unit import Unit
from scorer.placement.snapshot import Snapshot


class HolderView(Struct, frozen=True):
    """A pod that has something of a GPU."""

    pod: str
    """`namespace/name`."""
    uid: str
    gang: str | None
    """`namespace/name`."""
    mem: int | None
    """[GiB]; null: the whole GPU, or one replica of it."""
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
    """A pod whose GPUs NVIDIA's plugin chooses."""

    pod: str
    gpus: int


class NodeView(Struct, frozen=True):
    """One node."""

    name: str
    mode: str
    ready: bool
    unschedulable: bool
    unaccounted: str | None
    """Why nothing is placed here; null where everything is known."""
    gpus: tuple[GPUView, ...]
    counted: tuple[CountedView, ...]


class NodesView(Struct, frozen=True):
    """The answer to `/v1/nodes`."""

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
    """A gang, as its object says."""

    namespace: str
    name: str
    object: str
    phase: str
    members: str
    reason: str
    plan: GangPlan | None


class GangsView(Struct, frozen=True):
    """The answer to `/v1/gangs`."""

    term: int
    gangs: tuple[GangView, ...]
    waiting: tuple[WaitingView, ...]
    """What waits now, single pods too, in no order."""


def view_nodes(snapshot: Snapshot, term: int, name: str | None = None) -> NodesView:
    """Return who has which GPU.

    Args:
        snapshot: The cluster.
        term: Of the leader that says so.
        name: Of one node; all that have GPUs, or pods with GPUs, when None.
    """
    chosen = [node for node in snapshot.nodes if node.has_gpus and name in {None, node.node.name}]
    return NodesView(term, tuple(map(_node, chosen)))


def view_gangs(
    gangs: Iterable[Gang],
    waiting: Iterable[tuple[Unit, str]],
    term: int,
    namespace: str | None = None,
) -> GangsView:
    """Return how gangs stand, and what waits.

    Args:
        gangs: All that there are.
        waiting: What waits, and why.
        term: Of the leader that says so.
        namespace: Whose; all when None.
    """
    return GangsView(
        term,
        tuple(_gang(one) for one in gangs if namespace in {None, one.metadata.namespace}),
        tuple(_waits(one, why) for one, why in waiting if namespace in {None, one.key.namespace}),
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
            GPUView(i, card.uuid, card.healthy, card.cordoned, tuple(holders[i]))
            for i, card in enumerate(node.cards)
        ),
        counted=tuple(
            CountedView(one.pod, one.nvidia) for one in ledger.holdings.values() if one.nvidia
        ),
    )


def _holders(ledger: NodeLedger) -> Iterator[tuple[int, HolderView]]:
    for one in ledger.holdings.values():
        for share in one.shares:
            yield share.i, HolderView(one.pod, one.uid, one.gang, share.mem, share.core)


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


def _waits(unit: Unit, reason: str) -> WaitingView:
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
