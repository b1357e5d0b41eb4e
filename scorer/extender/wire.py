"""The extender protocol of kube-scheduler, version 1: its types, and readers of requests.

The Go types have no JSON tags, so that names on the wire are those of the Go fields. Requests must
have names of nodes (`nodeCacheCapable: true`) instead of whole Nodes.

Source: k8s.io/kube-scheduler v0.36.3, extender/v1/types.go; pkg/scheduler/extender.go.
"""

from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta, Raw, Struct, field

from linkwise.cluster.objects.pod import Pod

_T = TypeVar("_T")
_NULL = Raw(b"null")
_Name = Annotated[str, Meta(max_length=253)]


class WireError(ValueError):
    """A body does not follow the protocol; the message says what is wrong, and what to do."""


class _Body(Struct, frozen=True, rename="pascal", gc=False):
    """One message, or a part of one."""


class _Args(_Body, frozen=True):
    """`ExtenderArgs`."""

    pod: Pod | None = None
    nodes: Raw = _NULL
    node_names: list[str] | None = None


class Candidates(Struct, frozen=True):
    """A pod, and the names of the nodes that the scheduler has not filtered out."""

    pod: Pod
    names: list[str]


class FilterResult(_Body, frozen=True):
    """`ExtenderFilterResult`. A missing list of names would mean that no node passes."""

    node_names: list[str] = []
    failed_nodes: dict[str, str] = {}
    """Reasons of nodes on which evictions may help."""
    failed_and_unresolvable_nodes: dict[str, str] = {}
    """Reasons of nodes on which they do not."""
    error: str = ""
    """Not empty: the scheduler retries the pod later."""


class HostPriority(_Body, frozen=True):
    """`HostPriority`: the score of a node."""

    host: str
    score: int


class Binding(_Body, frozen=True):
    """`ExtenderBindingArgs`: a pod, and the node that the scheduler chose."""

    pod_name: _Name
    pod_namespace: _Name
    pod_uid: str = field(name="PodUID")
    node: _Name


class BindResult(_Body, frozen=True):
    """`ExtenderBindingResult`."""

    error: str = ""
    """Empty: the pod is bound."""


class MetaPod(_Body, frozen=True):
    """`MetaPod`: a pod to be evicted."""

    uid: str = field(name="UID")


class MetaVictims(_Body, frozen=True):
    """`MetaVictims`: the pods to be evicted from a node."""

    pods: list[MetaPod] | None = None
    num_pdb_violations: int = field(name="NumPDBViolations", default=0)


class _PreemptArgs(_Body, frozen=True):
    """`ExtenderPreemptionArgs`: a pod, and its victims by node."""

    pod: Pod | None = None
    node_name_to_victims: Raw = _NULL
    node_name_to_meta_victims: dict[str, MetaVictims] | None = None


class PreemptResult(_Body, frozen=True):
    """`ExtenderPreemptionResult`: the nodes on which evictions help, each with its victims."""

    node_name_to_meta_victims: dict[str, MetaVictims]


def read_candidates(body: bytes) -> Candidates:
    """Return a request to `/filter` or `/prioritize`.

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
    """Return a request to `/bind`.

    Raises:
        WireError: The body is malformed.
    """
    return _read(body, Binding)


def read_preempt(body: bytes) -> tuple[Pod, dict[str, MetaVictims]]:
    """Return a request to `/preempt`: the pod, and its victims by node.

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
