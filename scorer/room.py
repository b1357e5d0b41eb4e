"""How many pods of a group a node can take now, or why it can take none."""

from cluster.demand import Demand
from cluster.ledger import NodeLedger
from cluster.node import Mode
from cluster.request import Family, Request
from cluster.selector import node_matches, tolerates
from scorer.cards import cards_for
from scorer.group import Group
from scorer.member import Member
from scorer.reason import Reason


def obstacle(node: NodeLedger, member: Member) -> Reason | None:
    """Say what keeps the pod from this node whatever is free there, or None."""
    facts, spec = node.node, member.pod.spec
    if not facts.ready or facts.unschedulable:
        return Reason.CORDONED if facts.ready else Reason.NOT_READY
    if not _gives(facts.mode, member.request):
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
    gpus = _gpu_room(node, group.kinds[0].request)
    if isinstance(gpus, Reason):
        return gpus
    others = _other_room(node, group.largest)
    return others if isinstance(others, Reason) else min(gpus, others)


def holds_all(node: NodeLedger, group: Group) -> bool:
    """Tell whether all members, each with whole GPUs, fit on this one node now."""
    total = group.total
    return (
        node.free_mask.bit_count() >= group.gpus
        and node.pods_free >= group.size
        and node.cpu_free >= total.cpu
        and node.memory_free_bytes >= total.memory
        and (not total.ports or (group.size == 1 and node.takes_ports(total.ports)))
        and all(obstacle(node, kind) is None for kind in group.kinds)
    )


def _gives(mode: Mode, request: Request) -> bool:
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


def _gpu_room(node: NodeLedger, request: Request) -> int | Reason:
    match request.family:
        case Family.WHOLE:
            return node.free_mask.bit_count() // request.gpus or Reason.GPUS
        case Family.SHARE:
            if node.sharing == ("memory" if request.core else "compute"):
                return Reason.SHARING
            return 1 if cards_for(node, request) else Reason.MEMORY_SHARE
        case Family.REPLICA:
            return 1 if cards_for(node, request) else Reason.REPLICAS
        case _:
            return max(0, node.nvidia_free) // request.gpus or Reason.GPUS


def _other_room(node: NodeLedger, demand: Demand) -> int | Reason:
    """Return how often this demand fits, by CPU, memory, pod slots and host ports."""
    limits = [
        (node.pods_free, Reason.PODS),
        (node.cpu_free // demand.cpu if demand.cpu else node.pods_free, Reason.CPU),
        (
            node.memory_free_bytes // demand.memory if demand.memory else node.pods_free,
            Reason.MEMORY,
        ),
    ]
    if demand.ports:
        limits.append((int(node.takes_ports(demand.ports)), Reason.PORTS))
    number, reason = min(limits, key=lambda limit: limit[0])
    return number if number > 0 else reason
