"""Choose victims of preemption so that a pod gets its GPUs: pods on the right cards only.

A scheduler compares sums. On a node whose cards are all in use it chooses victims on any cards, so
that the pod may fit on none of them afterwards.
"""

from collections.abc import Iterable, Mapping, Sequence
from sys import intern
from typing import NamedTuple

from cluster.account.node_ledger import NodeLedger
from cluster.account.pod_usage import PodUsage
from cluster.allocations.record import Allocation
from cluster.keys import GPU_CORE, GPU_MEM
from cluster.objects.pod import Pod
from cluster.requests.request import Family, Request
from runtime.process.clock import Clock
from scorer.cache.cluster_state import ClusterState
from scorer.extender.filter import filter_gpus, pod_allocation, request_of
from scorer.extender.wire import MetaPod, MetaVictims
from scorer.placement.filtering.reasons import Reason
from scorer.placement.pods.member import Member, new_member

_PREEMPTORS_MAX = 64
"""Preemptors that are kept; beyond it the one that got victims longest ago is forgotten."""
_IN_PROGRESS = 10.0
"""For how long a preemptor gets no other victims [s]."""


class _Choice(NamedTuple):
    """The victims of a preemptor, of which a scheduler evicts those of one node."""

    victims: Mapping[str, Sequence[str]]
    """Uids by node."""
    until: float
    """They may be about to end [s on the clock]."""


class Preemption:
    """Chooses victims, for one term of the Lease."""

    def __init__(self, state: ClusterState, clock: Clock) -> None:
        """Start without a preemptor.

        Args:
            state: The cluster.
            clock: A clock that is never set [s].
        """
        self._state, self._clock = state, clock
        self._choices: dict[str, _Choice] = {}
        """By uid of a preemptor, the oldest choice first."""

    def run(self, pod: Pod, proposed: Mapping[str, MetaVictims]) -> dict[str, MetaVictims]:
        """Return the nodes on which evictions give a pod its GPUs, each with its victims.

        No node while victims of an earlier answer may be about to end: kube-scheduler asks again as
        soon as it has deleted them, and before it sees their end and its own nomination.

        The number of violated disruption budgets stays the scheduler's: victims that it did not
        propose are not counted.

        Args:
            pod: The preemptor.
            proposed: The scheduler's victims by node, each of lower priority than the pod.

        Cost: for each node a check of its cards for each of its pods with GPUs.
        """
        state = self._state
        allocation, request = pod_allocation(state, pod), request_of(pod)
        if isinstance(allocation, Allocation):
            # It has GPUs, and lacks something else on their node.
            return {name: victims for name, victims in proposed.items() if name == allocation.node}
        if isinstance(allocation, Reason) or isinstance(request, Reason):
            return {}
        if not request.places:
            return dict(proposed)
        member = new_member(pod, pod.metadata.namespace)
        if self._is_in_progress(pod.metadata.uid, member):
            return {}
        chosen: dict[str, Sequence[str]] = {}
        for name, victims in proposed.items():
            ledger = state.ledger_for(name, pod.spec.priority or 0)
            usages = {usage.uid: usage for usage in state.usages(name) if usage.node == name}
            uids = [victim.uid for victim in victims.pods or ()]
            if ledger and (found := _choose_victims(ledger, usages, member, uids)):
                # Each request has uids of its own, also where they are equal.
                chosen[name] = tuple(map(intern, found))
        if chosen:
            self._keep(pod.metadata.uid, chosen)
        return {
            name: MetaVictims(list(map(MetaPod, uids)), proposed[name].num_pdb_violations)
            for name, uids in chosen.items()
        }

    def _keep(self, uid: str, victims: Mapping[str, Sequence[str]]) -> None:
        now = self._clock()
        self._choices.pop(uid, None)
        for oldest, choice in list(self._choices.items()):
            if choice.until > now and len(self._choices) < _PREEMPTORS_MAX:
                break
            del self._choices[oldest]
        self._choices[uid] = _Choice(victims, now + _IN_PROGRESS)

    def _is_in_progress(self, uid: str, member: Member) -> bool:
        """Return whether the victims of a preemptor may be about to end, or made room for it."""
        choice = self._choices.get(uid)
        if choice is None or choice.until < self._clock():
            return False
        cleared: list[NodeLedger] = []
        for name, victims in choice.victims.items():
            node = self._state.ledger_for(name, member.pod.spec.priority or 0)
            held = node.holdings.keys() & set(victims) if node else set()
            # Which node the scheduler chose is known once victims end there.
            if any(map(self._state.is_ending, held)):
                return True
            if node and not held:
                cleared.append(node)
        return not cleared or any(_fits(node, member) for node in cleared)


def _choose_victims(
    node: NodeLedger, usages: Mapping[str, PodUsage], member: Member, proposed: list[str]
) -> list[str]:
    """Return the uids of the victims on a node; none where evictions are useless or needless.

    Follows the scheduler: release all pods of lower priority, then reprieve each pod that still
    fits beside the preemptor. Reprieved first are pods that were not proposed; among these members
    of gangs, then by priority, then pods on none of the proposed victims' cards, so that few pods
    are evicted. A victim that was proposed for a resource that is not counted here stays a victim.
    """
    priority = member.pod.spec.priority or 0
    lower = {uid for uid, pod in usages.items() if pod.places and pod.priority < priority}
    without_proposed = _release(node, proposed)
    remaining = _release(without_proposed, lower)
    if not _fits(remaining, member):
        return []
    evicted = [uid for uid in proposed if not _is_counted(node, without_proposed, member, uid)]
    candidates = (lower | set(proposed)) & node.holdings.keys() - set(evicted)
    cards = _cards(node, proposed)

    def reprieve_order(uid: str) -> tuple[object, ...]:
        pod = usages.get(uid)
        if pod is None:
            return (True,)
        shares_card = not cards.isdisjoint(_cards(node, [uid]))
        return uid in proposed, pod.gang is None, -pod.priority, shares_card, pod.age

    for uid in sorted(candidates, key=reprieve_order):
        with_pod = remaining.hold(node.holdings[uid])
        if _fits(with_pod, member):
            remaining = with_pod
        else:
            evicted.append(uid)
    # The scheduler compares nodes by their first victim, as the most important one.
    return sorted(evicted, key=lambda uid: _importance(usages.get(uid)))


def _importance(pod: PodUsage | None) -> tuple[int, str]:
    return (-pod.priority, pod.age) if pod else (0, "")


def _cards(node: NodeLedger, uids: Iterable[str]) -> set[int]:
    holdings = (node.holdings[uid] for uid in uids if uid in node.holdings)
    return {share.i for holding in holdings for share in holding.gpus.shares}


def _is_counted(node: NodeLedger, without_proposed: NodeLedger, member: Member, uid: str) -> bool:
    """Return whether a victim was proposed for an amount that is counted here."""
    holding = node.holdings.get(uid)
    return holding is not None and not _has_amounts(without_proposed.hold(holding), member)


def _fits(node: NodeLedger, member: Member) -> bool:
    return filter_gpus(node, member.request) is None and _has_amounts(node, member)


def _has_amounts(node: NodeLedger, member: Member) -> bool:
    """Return whether a node has all amounts that a scheduler counts, on whichever cards."""
    demand = member.demand
    return (
        node.pods_free > 0
        and (not demand.cpu or node.cpu_free >= demand.cpu)
        and (not demand.memory or node.memory_free_bytes >= demand.memory)
        and node.takes_ports(demand.ports)
        and _has_gpus(node, member.request)
    )


def _has_gpus(node: NodeLedger, request: Request) -> bool:
    held = [share for holding in node.holdings.values() for share in holding.gpus.shares]
    if request.family is Family.SHARE:
        memory, core = sum(share.mem or 0 for share in held), sum(share.core or 0 for share in held)
        amounts = [(GPU_MEM, memory, request.memory), (GPU_CORE, core, request.core)]
    else:
        amounts = [(request.resource, len(held), request.gpus)]
    offered = node.node.resources
    return all(
        used + requested <= offered[name]
        for name, used, requested in amounts
        if requested and name in offered
    )


def _release(node: NodeLedger, uids: Iterable[str]) -> NodeLedger:
    for uid in uids:
        node = node.release(uid)
    return node
