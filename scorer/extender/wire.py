"""The extender protocol of kube-scheduler, version 1: bytes to values and back.

Its types have no JSON tags, so that names on the wire are those of the Go fields. Only names of
nodes are taken (`nodeCacheCapable: true`), never whole Nodes.

Source: k8s.io/kube-scheduler v0.36.3, extender/v1/types.go; pkg/scheduler/extender.go.
"""

from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta, Raw, Struct, field

from cluster.pod import Pod

_T = TypeVar("_T")
_NULL = Raw(b"null")
_Name = Annotated[str, Meta(max_length=253)]


class WireError(ValueError):
    """A body is not what the protocol says; the message says what is wrong, and what to do."""


class _Body(Struct, frozen=True, rename="pascal", gc=False):
    """One message, or a part of one."""


class _Args(_Body, frozen=True):
    """`ExtenderArgs`: a pod, and the nodes that are left for it."""

    pod: Pod | None = None
    nodes: Raw = _NULL
    node_names: list[str] | None = None


class Candidates(Struct, frozen=True):
    """A pod, and the names of the nodes that are left for it."""

    pod: Pod
    names: list[str]


class FilterResult(_Body, frozen=True):
    """`ExtenderFilterResult`. A missing list of names would mean that no node passes."""

    node_names: list[str] = []
    failed_nodes: dict[str, str] = {}
    """Why, of nodes on which an eviction may help."""
    failed_and_unresolvable_nodes: dict[str, str] = {}
    """Why, of nodes on which none does."""
    error: str = ""
    """The pod is tried again later."""


class HostPriority(_Body, frozen=True):
    """`HostPriority`: what a node scores."""

    host: str
    score: int


class Binding(_Body, frozen=True):
    """`ExtenderBindingArgs`: a pod, and the node that was chosen for it."""

    pod_name: _Name
    pod_namespace: _Name
    pod_uid: str = field(name="PodUID")
    node: _Name


class BindResult(_Body, frozen=True):
    """`ExtenderBindingResult`."""

    error: str = ""
    """Empty: it is bound."""


class MetaPod(_Body, frozen=True):
    """`MetaPod`: a pod to be evicted."""

    uid: str = field(name="UID")


class MetaVictims(_Body, frozen=True):
    """`MetaVictims`: the pods to be evicted from a node."""

    pods: list[MetaPod] | None = None
    num_pdb_violations: int = field(name="NumPDBViolations", default=0)


class _PreemptArgs(_Body, frozen=True):
    """`ExtenderPreemptionArgs`: a pod, and who would be evicted for it, by node."""

    pod: Pod | None = None
    node_name_to_victims: Raw = _NULL
    node_name_to_meta_victims: dict[str, MetaVictims] | None = None


class PreemptResult(_Body, frozen=True):
    """`ExtenderPreemptionResult`: the nodes on which evictions help, and whose."""

    node_name_to_meta_victims: dict[str, MetaVictims]


def read_candidates(body: bytes) -> Candidates:
    """Return what `/filter` and `/prioritize` are asked.

    Raises:
        WireError: The body is malformed, or has whole Nodes in it.
    """
    args = _read(body, _Args)
    if args.pod is None:
        raise WireError("there is no Pod in it")
    if args.node_names is None:
        raise WireError(
            "there are no NodeNames in it: set nodeCacheCapable to true in the scheduler's "
            "configuration, since whole Nodes are not read"
        )
    return Candidates(args.pod, args.node_names)


def read_binding(body: bytes) -> Binding:
    """Return what `/bind` is asked.

    Raises:
        WireError: The body is malformed.
    """
    return _read(body, Binding)


def read_preempt(body: bytes) -> tuple[Pod, dict[str, MetaVictims]]:
    """Return what `/preempt` is asked: the pod, and who would be evicted for it by node.

    Raises:
        WireError: The body is malformed, or has whole pods in it.
    """
    args = _read(body, _PreemptArgs)
    if args.pod is None:
        raise WireError("there is no Pod in it")
    if args.node_name_to_meta_victims is None and bytes(args.node_name_to_victims) != b"null":
        raise WireError(
            "victims are named by UID only: set nodeCacheCapable to true in the scheduler's "
            "configuration"
        )
    return args.pod, args.node_name_to_meta_victims or {}


def _read(body: bytes, kind: type[_T]) -> _T:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise WireError(f"it is not what the extender protocol says: {error}") from error
