"""Types of the fit API of the scorer, which simulates the placement of pods that do not exist yet.

`POST /v1/fit`. Parts of the answer appear in dry runs and in `check` unchanged: fields may be
added, never changed.
"""

from typing import Literal

from msgspec import UNSET, Struct, UnsetType

from linkwise.cluster.objects.pod import Pod

PATH = "/v1/fit"
MAX_PODS = 256
"""Maximum number of pods per request, since each is placed, which costs CPU time."""


class FitTemplate(Struct, frozen=True):
    """Identical pods of one template."""

    pod: Pod
    """One of them, as admitted, with its namespace."""
    names: list[str]
    """Names of all of them, in rank order; at least one."""
    owner: str = ""
    """Uid of their top owner, which distinguishes gangs of the same name."""
    members: int | None = None
    """Number of GPU pods of that owner; None if unknown."""
    starts_with: int | None = None
    """How many of these suffice to start where they are a gang by their owner; None: all."""
    labels: list[dict[str, str]] = []
    """Of each pod those labels that `pod` has otherwise or not, such as its group; empty: none."""


class FitRequest(Struct, frozen=True):
    """Templates whose pods would be created together, in order."""

    templates: list[FitTemplate]

    @property
    def pods(self) -> int:
        """Number of pods."""
        return sum(len(template.names) for template in self.templates)


class PodFit(Struct, frozen=True):
    """Placement of one pod."""

    name: str
    node: str | None
    """None: it does not fit now."""
    gpus: list[int] | None
    """Indices, ascending; None if it does not fit, or NVIDIA's plugin chooses them."""
    count: int | None = None
    """Number of GPUs where NVIDIA's plugin chooses them."""


class NodeLeft(Struct, frozen=True, omit_defaults=True):
    """Free resources of a node before and after; lists are by GPU index."""

    name: str
    mode: str
    gpus: int
    free_before: int
    """Free GPUs."""
    free_after: int
    memory_free_before: list[int] | None = None
    """Free memory of each card for shares [GiB]; None on nodes without shares."""
    memory_free_after: list[int] | None = None
    core_free_before: list[int] | None = None
    """Free compute of each card for shares [%]; None without compute shares."""
    core_free_after: list[int] | None = None
    replicas_free_before: list[int] | None = None
    """Free replicas of each GPU; None if not time-sliced."""
    replicas_free_after: list[int] | None = None
    parts: str | None = None
    """What NVIDIA's plugin offers as whole GPUs, such as `4 replicas of 1 GPU`; None: these."""
    parts_free_before: int | None = None
    parts_free_after: int | None = None


class Preempted(Struct, frozen=True, kw_only=True):
    """A gang or a single pod that would be evicted."""

    kind: Literal["gang", "pod"]
    namespace: str
    name: str
    pods: int
    running_seconds: int
    """Since the first of its pods started; 0 where this is unknown."""
    gpu_hours: float
    """GPU time of its pods since they started; 0 where this is unknown [h]."""


class FitResult(Struct, frozen=True):
    """Placement of the pods of one template."""

    fits: bool
    gang: str | None
    """The gang that is placed as a whole; None: single pods."""
    pods: list[PodFit]
    """In the order of the request."""
    nodes: list[NodeLeft]
    """Their nodes by name, before and after all pods of the request."""
    bandwidth: float | None
    """Modelled all-reduce bandwidth, of single pods the minimum [GB/s]; None: undefined."""
    best_possible: float | None
    """The same on the empty cluster [GB/s]."""
    why: str | None
    """Why these nodes; None for several single pods, or if nothing fits."""
    notes: list[str]
    """Notes about unknowns and decisions left to others; each once."""
    reason: str | None
    """Why not all of them fit; None if they do."""
    never: bool = False
    """They would not fit even on the empty cluster."""
    bandwidth_note: str | None = None
    """`nic unknown`: the NICs do not count in the bandwidth. `GPUs unknown`: there is none,
    since NVIDIA's plugin chooses some of the GPUs."""
    bandwidth_nodes: int | None = None
    """The number of nodes that it spans; with `nic unknown`, compare only equal numbers."""
    best_possible_nodes: int | None = None
    """The number of nodes on the empty cluster."""
    preempts: list[Preempted] | UnsetType = UNSET
    """The units that would be evicted for them where they do not fit now; unset: none. The API
    names only those of the namespaces of the request."""
    preempts_others: int | UnsetType = UNSET
    """The number of such units of other namespaces; unset: none, or all are named."""


class FitResponse(Struct, frozen=True):
    """One result for each template."""

    fits: list[FitResult]
