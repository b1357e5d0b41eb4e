"""A job of a trace, and the pods that it is placed as."""

from dataclasses import dataclass
from functools import lru_cache

from linkwise.cluster.keys import GFD_PRODUCT
from linkwise.cluster.objects.affinity import (
    Affinity,
    NodeAffinity,
    NodeSelector,
    NodeSelectorTerm,
    Requirement,
)
from linkwise.cluster.objects.metadata import Metadata
from linkwise.cluster.objects.pod import Pod, PodSpec
from linkwise.cluster.requests.demand import Demand
from linkwise.cluster.requests.request import Family, Request
from linkwise.planning.placement.pods.member import Member

MILLI = 1000
"""Parts of one GPU."""

FOREVER = float("inf")
"""The duration of a job that does not end."""

NAMESPACE = "replay"


@dataclass(frozen=True, slots=True)
class Shape:
    """What each pod of a job asks for; jobs of equal shape and size are placed alike."""

    gpus: int
    """GPUs of one pod, at least 1."""
    milli: int = MILLI
    """The part of each GPU [1/1000]; less than `MILLI` for a share, which is of one GPU."""
    cpu: int = 0
    """[millicores]"""
    memory: int = 0
    """[bytes]"""
    models: frozenset[str] = frozenset()
    """The GPU models that it may use; empty: any."""
    pods: int = 1
    """Number of pods, which start together."""
    priority: int = 0
    """A policy that preempts may evict jobs of a lower one."""
    rdma: int = 0
    """The bandwidth of RDMA [percent of one NIC]; only for jobs of one pod and of no priority."""
    application: str = ""
    """The name of the application, where it has a limit."""
    most_per_node: int = 0
    """The most pods of the application on one node, as for `rdma`; 0: no limit."""

    @property
    def is_share(self) -> bool:
        """It asks for a part of one GPU."""
        return self.milli < MILLI

    @property
    def total(self) -> float:
        """GPUs of all pods, with the parts of shares."""
        return self.pods * self.gpus * self.milli / MILLI


@dataclass(frozen=True, slots=True)
class Job:
    """A job of a trace."""

    name: str
    submit: float
    """[s] since the start of the trace."""
    duration: float
    """[s]"""
    shape: Shape

    @property
    def gpu_seconds(self) -> float:
        """GPU time [s]; 0 of a job that does not end."""
        return self.duration * self.shape.total if self.duration < FOREVER else 0.0


def members_of(job: Job, number: int, *, shared: bool) -> tuple[Member, ...]:
    """Return the pods of a job, as the input of placement.

    Args:
        job: The job.
        number: Makes the uids of its pods unique: names of a trace may repeat.
        shared: Its fleet gives out shares, so that whole GPUs are shares of whole cards.
    """
    shape = job.shape
    request, demand, spec = _parts(shape, shared=shared)
    gang = f"{NAMESPACE}/{job.name}" if shape.pods > 1 else None
    members: list[Member] = []
    for i in range(shape.pods):
        name = job.name if shape.pods == 1 else f"{job.name}-{i}"
        metadata = Metadata(name=name, namespace=NAMESPACE, uid=f"{number}-{i}")
        pod = Pod(metadata=metadata, spec=spec)
        members.append(Member(pod, f"{NAMESPACE}/{name}", request, demand, gang))
    return tuple(members)


@lru_cache(maxsize=4096)
def _parts(shape: Shape, *, shared: bool) -> tuple[Request, Demand, PodSpec]:
    request = Request(Family.WHOLE, shape.gpus)
    if shared:
        request = Request(Family.SHARE, shape.gpus, memory=shape.gpus * shape.milli)
    return request, Demand(shape.cpu, shape.memory, frozenset()), _spec(shape)


def _spec(shape: Shape) -> PodSpec:
    if not shape.models:
        return PodSpec(containers=[], priority=shape.priority)
    model = Requirement(GFD_PRODUCT, "In", sorted(shape.models))
    terms = [NodeSelectorTerm(match_expressions=[model])]
    nodes = NodeSelector(node_selector_terms=terms)
    return PodSpec(
        containers=[],
        priority=shape.priority,
        affinity=Affinity(
            node_affinity=NodeAffinity(required_during_scheduling_ignored_during_execution=nodes)
        ),
    )
