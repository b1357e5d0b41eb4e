"""The document of `linkwise inspect` for scripts: gpushare's `/inspect` with more fields.

The fields of gpushare are `nodes[].{name,totalGPU,usedGPU,devs[].{id,totalGPU,usedGPU,pods[].{name,
namespace,usedGPU}}}`, amounts in GiB, 0 for a card of unknown memory. Fields may be added.
"""

from collections.abc import Sequence

from msgspec import Struct, field

from linkwise.views.analysis.inspection import GPUHolder, InspectedNode
from linkwise.views.output.document import Document, rounded
from linkwise.views.render.topology_json import Kubelet, kubelet_report


class PodOnDevice(Struct, frozen=True, kw_only=True):
    """A pod that has some of a GPU."""

    name: str
    namespace: str
    used: int = field(name="usedGPU")
    """[GiB]"""
    core: int | None
    """Of the GPU's compute [%]."""
    replicas: int | None
    whole: bool
    gang: str | None
    isolation: str | None
    """The mechanism that enforces its share."""
    bound: bool
    """False while its record names the node, but the scheduler has not bound it yet."""


class Device(Struct, frozen=True, kw_only=True):
    """A GPU."""

    id: int
    total: int = field(name="totalGPU")
    """[GiB]"""
    used: int = field(name="usedGPU")
    """[GiB]"""
    pods: list[PodOnDevice]
    uuid: str | None
    healthy: bool
    cordoned: bool
    """By an administrator, or held by a claim."""
    claimed: bool
    """A ResourceClaim holds it, or a part of it."""
    device: str | None
    """Its name in the pool of a claims node."""
    whole: bool
    holders: int
    replicas: int | None
    used_core: int
    """[%]"""
    nvlinks: dict[str, int]
    """The number of links, by the other GPU."""


class PendingPod(Struct, frozen=True, kw_only=True):
    """A pod that has GPUs of the node, but it is not known which."""

    name: str
    namespace: str
    used: int = field(name="usedGPU")
    """[GiB]"""


class CountedPod(Struct, frozen=True, kw_only=True):
    """A pod whose GPUs NVIDIA's plugin chooses."""

    name: str
    namespace: str
    gpus: int
    gang: str | None
    """`namespace/name`."""
    bandwidth: float | None
    """Of all GPUs of the node, if the pod or its gang has them [GB/s]. Else it is not known."""


class NodeReport(Struct, frozen=True, kw_only=True):
    """A node with GPUs."""

    name: str
    total: int = field(name="totalGPU")
    """[GiB]"""
    used: int = field(name="usedGPU")
    """[GiB]"""
    devs: list[Device]
    address: str | None
    mode: str
    placement: str
    ready: bool
    unschedulable: bool
    class_: str | None = field(name="class")
    """Shared by machines with equal links; null where the links are not known."""
    model: str | None
    machine_source: str
    """The source of its links: `agent`, `policy`, `gpu-feature-discovery`, `catalogue`,
    `resource-slices`, `cluster-file` or `unknown`."""
    pool: str | None
    """The pool in which NVIDIA's DRA driver offers its GPUs; null on other nodes."""
    missing: str | None
    """Why none of them is given out for now."""
    unhealthy: list[int]
    """GPUs on which no pod is placed, since they are faulty."""
    mismatch: str | None
    """How the processes on its GPUs contradict the records of pods, by its agent."""
    isolation: str | None
    """The mechanism that limits shares on the node, by its agent; null if it reports none."""
    kubelet: Kubelet
    free: list[int]
    """GPUs without holders; empty where it is not known which are free."""
    free_bandwidth: float | None
    """[GB/s]"""
    gpus_free: int
    enforced: list[str]
    unaccounted: str | None
    """A pod that has GPUs of the node, but it is not known which."""
    pending: list[PendingPod]
    counted: list[CountedPod]


class Inspection(Document, frozen=True, kw_only=True):
    """The GPUs of each node and their holders."""

    nodes: list[NodeReport]


def document(views: Sequence[InspectedNode]) -> Inspection:
    """Return the document of an inspection."""
    return Inspection(nodes=[_node(view) for view in views])


def _node(view: InspectedNode) -> NodeReport:
    node, ledger = view.node, view.ledger
    return NodeReport(
        name=node.name,
        total=sum(map(view.total, view.indices)),
        used=sum(map(view.used, view.indices)) + sum(pod.memory for pod in view.pending),
        devs=[_device(view, i) for i in view.indices],
        address=view.address,
        mode=node.mode.value,
        placement=node.placement.value,
        ready=node.ready,
        unschedulable=node.unschedulable,
        class_=view.table.key if node.machine_known else None,
        model=view.node.model,
        machine_source=node.machine_source.value,
        pool=node.pool.name if node.pool else None,
        missing=view.missing,
        unhealthy=[i for i in view.indices if not node.cards[i].healthy],
        mismatch=node.mismatch,
        isolation=node.isolation.value if node.isolation else None,
        kubelet=kubelet_report(node),
        free=list(view.free),
        free_bandwidth=rounded(view.bandwidth(view.free)),
        gpus_free=ledger.gpus_free,
        enforced=sorted(view.enforced),
        unaccounted=ledger.unaccounted,
        pending=[
            PendingPod(name=name, namespace=namespace, used=pod.memory)
            for pod in view.pending
            for namespace, _, name in [pod.name.partition("/")]
        ],
        counted=[
            CountedPod(
                name=name,
                namespace=namespace,
                gpus=len(held.gpus),
                gang=each.gang,
                bandwidth=rounded(each.bandwidth),
            )
            for each in view.counted_sets
            for held in each.holdings
            for namespace, _, name in [held.pod.partition("/")]
        ],
    )


def _device(view: InspectedNode, i: int) -> Device:
    card, taken = view.node.cards[i], view.ledger.taken[i]
    machine = view.node.machine
    links = machine.links[i] if machine and view.node.machine_known else ()
    return Device(
        id=i,
        total=view.total(i),
        used=view.used(i),
        pods=[_pod(view, holder, i) for holder in view.holders_of(i)],
        uuid=card.uuid,
        healthy=card.healthy,
        cordoned=card.is_closed,
        claimed=card.claimed,
        device=view.node.pool.devices[i] if view.node.pool else None,
        whole=taken.whole,
        holders=taken.holders,
        replicas=view.node.replicas or None,
        used_core=taken.core,
        nvlinks={str(j): count for j, count in enumerate(links) if count and j != i},
    )


def _pod(view: InspectedNode, holder: GPUHolder, i: int) -> PodOnDevice:
    shares = holder.shares_of(i)
    return PodOnDevice(
        name=holder.name,
        namespace=holder.namespace,
        used=view.memory_held(holder, i),
        core=sum(share.core or 0 for share in shares) or None,
        replicas=len(shares) if view.node.replicas else None,
        whole=not view.node.replicas and any(share.mem is None for share in shares),
        gang=holder.holding.gang,
        isolation=holder.isolation,
        bound=holder.bound,
    )
