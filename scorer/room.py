"""How many pods of a group a node can take now, or why it can take none."""

from collections.abc import Iterable

from cluster.ledger import NodeLedger
from cluster.node import Mode
from cluster.request import Family, Request
from cluster.selector import node_matches, tolerates
from scorer.cards import has_room
from scorer.group import Group
from scorer.member import Member
from scorer.reason import Reason


def obstacle(node: NodeLedger, member: Member) -> Reason | None:
    """Say what keeps the pod from this node whatever is free there, or None."""
    facts, spec = node.node, member.pod.spec
    if not facts.ready or facts.unschedulable:
        return Reason.CORDONED if facts.ready else Reason.NOT_READY
    if not gives(facts.mode, member.request):
        return Reason.MODE
    if any(not tolerates(spec.tolerations, taint) for taint in facts.taints):
        return Reason.TAINT
    if not node_matches(spec, facts.name, facts.labels):
        return Reason.SELECTOR
    if node.unaccounted and member.request.places:
        return Reason.UNACCOUNTED
    return None


def room(node: NodeLedger, group: Group) -> int | Reason:
    """Return how many members the node can take, at least 1, or why none.

    Members with the same GPUs but other CPU or memory are all counted as the largest of them, so
    that any of them may come. For shares and replicas the answer is 1 or none: each pod changes
    what the next one finds.
    """
    for kind in group.kinds:
        blocked = obstacle(node, kind)
        if blocked is not None:
            return blocked
    gpus = gpu_room(node, group.kinds[0].request)
    if isinstance(gpus, Reason):
        return gpus
    others = _other_room(node, group)
    return others if isinstance(others, Reason) else min(gpus, others)


def survey(
    nodes: Iterable[NodeLedger], group: Group
) -> tuple[list[tuple[NodeLedger, int]], list[Reason]]:
    """Return the nodes that can take members, and how many; and why each of the others cannot."""
    able: list[tuple[NodeLedger, int]] = []
    blocked: list[Reason] = []
    for node in nodes:
        found = room(node, group)
        if isinstance(found, Reason):
            blocked.append(found)
        else:
            able.append((node, found))
    return able, blocked


def holds_all(node: NodeLedger, group: Group) -> bool:
    """Tell whether all members, each with whole GPUs, fit on this one node now."""
    # Most nodes of a large gang fail by the number of GPUs, which is seen at once.
    return node.free_mask.bit_count() >= group.gpus and shortage(node, group) is None


def shortage(node: NodeLedger, group: Group) -> Reason | None:
    """Say why this one node does not take all members, each with whole GPUs, or None."""
    for kind in group.kinds:
        blocked = obstacle(node, kind)
        if blocked is not None:
            return blocked
    total = group.total
    enough = {
        Reason.GPUS: node.free_mask.bit_count() >= group.gpus,
        Reason.PODS: node.pods_free >= group.size,
        Reason.CPU: not total.cpu or node.cpu_free >= total.cpu,
        Reason.MEMORY: not total.memory or node.memory_free_bytes >= total.memory,
        Reason.PORTS: not group.apart and node.takes_ports(total.ports),
    }
    return next((reason for reason, fits in enough.items() if not fits), None)


def gives(mode: Mode, request: Request) -> bool:
    """Tell whether nodes of this mode give out what is asked for."""
    match request.family:
        case Family.WHOLE:
            return mode is Mode.TOPOLOGY
        case Family.SHARE:
            return mode.shares_compute if request.core else mode.shares_memory
        case Family.REPLICA:
            return mode is Mode.TIMESLICE
        case _:
            return mode is Mode.DEFAULT


def gpu_room(node: NodeLedger, request: Request) -> int | Reason:
    """Return how often this node's GPUs satisfy a request, or why not once; 1 for shares."""
    match request.family:
        case Family.WHOLE:
            return node.free_mask.bit_count() // request.gpus or Reason.GPUS
        case Family.SHARE:
            if node.sharing == ("memory" if request.core else "compute"):
                return Reason.MEMORY_ONLY if request.core else Reason.COMPUTE_TOO
            return 1 if has_room(node, request) else Reason.MEMORY_SHARE
        case Family.REPLICA:
            return 1 if has_room(node, request) else Reason.REPLICAS
        case _:
            return max(0, node.nvidia_free) // request.gpus or Reason.GPUS


def _other_room(node: NodeLedger, group: Group) -> int | Reason:
    """Return how many members fit by pod slots, CPU, memory and host ports."""
    demand = group.largest
    limits = [
        (node.pods_free, Reason.PODS),
        (node.cpu_free // demand.cpu if demand.cpu else node.pods_free, Reason.CPU),
        (
            node.memory_free_bytes // demand.memory if demand.memory else node.pods_free,
            Reason.MEMORY,
        ),
    ]
    if not node.takes_ports(demand.ports):
        return Reason.PORTS
    if group.apart:
        limits.append((1, Reason.PORTS))
    number, reason = min(limits, key=lambda limit: limit[0])
    return number if number > 0 else reason
