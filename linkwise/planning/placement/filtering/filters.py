"""Filter nodes for a pod, and count how often the GPUs of a node satisfy its request."""

from linkwise.cluster.account.node_ledger import NodeLedger
from linkwise.cluster.keys import NOT_READY, UNSCHEDULABLE
from linkwise.cluster.mode import NodeMode
from linkwise.cluster.nodes.node import Node, Taint
from linkwise.cluster.objects.pod import PodSpec
from linkwise.cluster.objects.selector import node_matches, tolerates
from linkwise.cluster.requests.request import Family, Request
from linkwise.planning.placement.filtering.reasons import Reason
from linkwise.planning.placement.filtering.shares import has_room
from linkwise.planning.placement.pods.member import Member

_SHORT = frozenset({Reason.GPUS, Reason.MEMORY_SHARE, Reason.REPLICAS})
"""Reasons that cordoned or unhealthy cards can cause."""


_CORDON = Taint(UNSCHEDULABLE, "", "NoSchedule")
_NOT_READY = tuple(Taint(key, "", "NoSchedule") for key in NOT_READY)


def filter_node(node: NodeLedger, member: Member) -> Reason | None:
    """Return why the pod does not fit this node, whatever is free there, or None."""
    facts, spec = node.node, member.pod.spec
    if (closed := _closed(facts, spec)) is not None:
        return closed
    if (unserved := _unserved(facts, member)) is not None:
        return unserved
    if any(not tolerates(spec.tolerations, taint) for taint in facts.taints):
        return Reason.TAINT
    if not node_matches(spec, facts.name, facts.labels):
        return Reason.SELECTOR
    if member.request.by_claim and facts.selected == 0:
        return Reason.DEVICES
    # Pods that are not planned go anywhere.
    return _hidden_capacity_for(node, member.request) if member.request.places else None


def may_use_closed(member: Member) -> bool:
    """Return whether a pod tolerates a cordon, or all taints of nodes that are not ready."""
    tolerations = member.pod.spec.tolerations
    return bool(tolerations) and (
        tolerates(tolerations, _CORDON) or all(tolerates(tolerations, one) for one in _NOT_READY)
    )


def _closed(node: Node, spec: PodSpec) -> Reason | None:
    """Return why a node is closed to all pods but those that tolerate it, as this one does not."""
    if not node.ready:
        # The node's controller writes one of the taints soon after the condition; which, is not
        # known before.
        own = [taint for taint in node.taints if taint in _NOT_READY]
        if not all(tolerates(spec.tolerations, taint) for taint in own or _NOT_READY):
            return Reason.NOT_READY
    if node.unschedulable and not tolerates(spec.tolerations, _CORDON):
        return Reason.CORDONED
    return None


def _unserved(node: Node, member: Member) -> Reason | None:
    """Return why a node does not offer what the pod asks for, in use or not."""
    if not mode_serves(node, member.request):
        return Reason.MODE
    is_divided = node.parts is not None and _is_by_count(node, member.request)
    return Reason.PARTS if is_divided and member.needs_whole_gpus else None


def _hidden_capacity_for(node: NodeLedger, request: Request) -> Reason | None:
    if not _is_by_count(node.node, request):
        return hidden_capacity(node)
    # To count GPUs, no tables of their links are needed.
    return Reason.UNACCOUNTED if node.unaccounted else None


def _is_by_count(node: Node, request: Request) -> bool:
    """Return whether NVIDIA's plugin would choose the GPUs of a planned pod on this node."""
    return request.by_count and node.is_counted


def hidden_capacity(node: NodeLedger) -> Reason | None:
    """Return why it is not known which GPUs of a node there are, are free, or how they are linked.

    None: all is known.
    """
    if node.node.pool and node.node.pool.missing:
        return Reason.SLICES
    if node.node.machine_refused:
        return Reason.REFUSED
    if node.unaccounted:
        return Reason.UNACCOUNTED
    return Reason.PREPARING if node.node.preparing else None


def mode_serves(node: Node, request: Request) -> bool:
    """Return whether a node of this mode offers the requested GPUs."""
    mode = node.mode
    match request.family:
        case Family.WHOLE:
            is_offered = mode is NodeMode.TOPOLOGY and node.gpu_resource == request.resource
            is_exact = is_offered and node.is_claims == request.by_claim
            return is_exact or _is_by_count(node, request)
        case Family.SHARE:
            return mode.shares_compute if request.core else mode.shares_memory
        case Family.REPLICA:
            return mode is NodeMode.TIMESLICE
        case Family.NVIDIA:
            return mode is NodeMode.DEFAULT and request.resource in node.resources
        case _:
            return mode is NodeMode.DEFAULT


def sharing_serves(node: NodeLedger, request: Request) -> bool:
    """Return whether the pods that share cards of a node share as a share requests it, or none."""
    return node.sharing != ("memory" if request.core else "compute")


def gpu_capacity(node: NodeLedger, request: Request) -> int | Reason:
    """Return how often this node's GPUs satisfy a request, or why not once; 1 for shares."""
    capacity = _gpu_capacity(node, request)
    if capacity not in _SHORT or (all_usable := node.ignoring_unhealthy) is node:
        return capacity
    return Reason.UNUSABLE if isinstance(_gpu_capacity(all_usable, request), int) else capacity


def _gpu_capacity(node: NodeLedger, request: Request) -> int | Reason:
    match request.family:
        case Family.WHOLE if not _is_by_count(node.node, request):
            return node.free_mask.bit_count() // request.gpus or Reason.GPUS
        case Family.SHARE:
            if not sharing_serves(node, request):
                return Reason.MEMORY_ONLY if request.core else Reason.COMPUTE_TOO
            return 1 if has_room(node, request) else Reason.MEMORY_SHARE
        case Family.REPLICA:
            return 1 if has_room(node, request) else Reason.REPLICAS
        case _:
            return max(0, node.counted_free(request.resource)) // request.gpus or Reason.GPUS
