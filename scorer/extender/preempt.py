"""Whom to evict so that a pod really gets its GPUs: pods of the right cards, and no others.

A scheduler counts sums only. On a node whose cards are all in use it picks victims wherever they
are, and the pod would fit on no card after they are gone.
"""

from collections.abc import Iterable, Mapping

from cluster.keys import GPU_CORE, GPU_MEM, GPU_WHOLE, NVIDIA_GPU_SHARED
from cluster.ledger import NodeLedger
from cluster.pod import Pod
from cluster.pod_usage import PodUsage
from cluster.record import Allocation
from cluster.request import Family, Request
from scorer.cache.cluster_state import ClusterState
from scorer.extender.filter import filter_node, given_to, request_of
from scorer.extender.wire import MetaPod, MetaVictims
from scorer.placement.member import Member, new_member
from scorer.placement.reasons import Reason


def preemption(
    state: ClusterState, pod: Pod, proposed: Mapping[str, MetaVictims]
) -> dict[str, MetaVictims]:
    """Return the nodes on which evictions bring a pod its GPUs, and whom to evict there.

    The number of disruption budgets that are violated is the scheduler's: who else is evicted than
    it proposed, for the sake of a card, counts in none.

    Args:
        state: The cluster.
        pod: Whom to make room for.
        proposed: By node, whom the scheduler would evict; each of lower priority than the pod.

    Cost: for each node a look at its cards for each of its pods with GPUs.
    """
    given, request = given_to(state, pod), request_of(pod)
    if isinstance(given, Allocation):
        # It has its GPUs, and needs something else there.
        return {name: victims for name, victims in proposed.items() if name == given.node}
    if isinstance(given, Reason) or isinstance(request, Reason):
        return {}
    if not request.places:
        return dict(proposed)
    member = new_member(pod, pod.metadata.namespace)
    found: dict[str, MetaVictims] = {}
    for name, victims in proposed.items():
        ledger = state.ledger(name)
        there = {one.uid: one for one in state.usages(name) if one.node == name}
        uids = [victim.uid for victim in victims.pods or ()]
        chosen = _chosen(ledger, there, member, uids) if ledger else []
        if chosen:
            found[name] = MetaVictims(list(map(MetaPod, chosen)), victims.num_pdb_violations)
    return found


def _chosen(
    node: NodeLedger, there: Mapping[str, PodUsage], member: Member, proposed: list[str]
) -> list[str]:
    """Return the uids of whom to evict from a node; none where that does not help, or nobody must.

    As the scheduler does it: all who may be evicted go, and each who can stay comes back. First who
    was not proposed; of these members of gangs, then by priority, and who is on no card of those
    proposed, so that few go. Who was proposed for a reason that is not counted here has to go.
    """
    priority = member.pod.spec.priority or 0
    lower = {uid for uid, one in there.items() if one.places and one.priority < priority}
    without = _released(node, proposed)
    left = _released(without, lower)
    if not _fits(left, member):
        return []
    evicted = [uid for uid in proposed if not _is_counted(node, without, member, uid)]
    back = (lower | set(proposed)) & node.holdings.keys() - set(evicted)
    cards = _cards(node, proposed)

    def importance(uid: str) -> tuple[object, ...]:
        one = there.get(uid)
        if one is None:
            return (True,)
        beside = not cards.isdisjoint(_cards(node, [uid]))
        return uid in proposed, one.gang is None, -one.priority, beside, one.age

    for uid in sorted(back, key=importance):
        more = left.hold(node.holdings[uid])
        if _fits(more, member):
            left = more
        else:
            evicted.append(uid)
    # The scheduler takes the first for the most important one, by which it compares nodes.
    return sorted(evicted, key=lambda uid: _rank(there.get(uid)))


def _rank(one: PodUsage | None) -> tuple[int, str]:
    return (-one.priority, one.age) if one else (0, "")


def _cards(node: NodeLedger, uids: Iterable[str]) -> set[int]:
    holdings = (node.holdings[uid] for uid in uids if uid in node.holdings)
    return {share.i for holding in holdings for share in holding.shares}


def _is_counted(node: NodeLedger, without: NodeLedger, member: Member, uid: str) -> bool:
    """Tell whether a victim was proposed for the sake of an amount that it takes."""
    holding = node.holdings.get(uid)
    return holding is not None and not _has_amounts(without.hold(holding), member)


def _fits(node: NodeLedger, member: Member) -> bool:
    return filter_node(node, member.request) is None and _has_amounts(node, member)


def _has_amounts(node: NodeLedger, member: Member) -> bool:
    """Tell whether a node has all that a scheduler counts, whichever cards it is on."""
    demand = member.demand
    return (
        node.pods_free > 0
        and (not demand.cpu or node.cpu_free >= demand.cpu)
        and (not demand.memory or node.memory_free_bytes >= demand.memory)
        and node.takes_ports(demand.ports)
        and _has_gpus(node, member.request)
    )


def _has_gpus(node: NodeLedger, request: Request) -> bool:
    held = [share for holding in node.holdings.values() for share in holding.shares]
    if request.family is Family.SHARE:
        taken = sum(share.mem or 0 for share in held), sum(share.core or 0 for share in held)
        sums = [(GPU_MEM, taken[0], request.memory), (GPU_CORE, taken[1], request.core)]
    else:
        name = GPU_WHOLE if request.family is Family.WHOLE else NVIDIA_GPU_SHARED
        sums = [(name, len(held), request.gpus)]
    offers = node.node.resources
    return all(
        taken + asked <= offers[name] for name, taken, asked in sums if asked and name in offers
    )


def _released(node: NodeLedger, uids: Iterable[str]) -> NodeLedger:
    for uid in uids:
        node = node.release(uid)
    return node
