"""Choose victims of preemption so that a pod gets its GPUs: pods on the right cards only.

A scheduler compares sums. On a node whose cards are all in use it chooses victims on any cards, so
that the pod may fit on none of them afterwards.

It knows no gangs either, and evicts pods of one node. So a gang is evicted only where all its
members with GPUs are on that node, and then all of them are; else none is.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from sys import intern
from typing import NamedTuple, TypeAlias

from linkwise.cluster.account.node_ledger import Holding, NodeLedger
from linkwise.cluster.account.pod_usage import PodUsage
from linkwise.cluster.allocations.record import Allocation
from linkwise.cluster.keys import GPU_CORE, GPU_MEM
from linkwise.cluster.objects.pod import Pod
from linkwise.cluster.requests.request import Family, Request
from linkwise.planning.gang.owners import Owners
from linkwise.planning.placement.filtering.reasons import Reason
from linkwise.planning.placement.pods.member import Member, new_member
from linkwise.planning.state.cluster_state import ClusterState
from linkwise.runtime.process.clock import Clock
from scorer.extender.filter import filter_gpus, pod_allocation, request_of
from scorer.extender.wire import MetaPod, MetaVictims

_Together: TypeAlias = Mapping[str, frozenset[str]]
"""By uid of a member of a gang: the members that are evicted with it; none: it is not evicted."""

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

    def __init__(self, state: ClusterState, owners: Callable[[], Owners], clock: Clock) -> None:
        """Start without a preemptor.

        Args:
            state: The cluster.
            owners: Returns the owners of pods, which distinguish gangs of one name.
            clock: A clock that is never set [s].
        """
        self._state, self._owners, self._clock = state, owners, clock
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

        Cost: for each node a check of its cards for each of its pods with GPUs, and linear in the
        members of their gangs.
        """
        state, priority = self._state, pod.spec.priority or 0
        allocation, request = pod_allocation(state, pod), request_of(pod)
        if isinstance(allocation, Allocation):
            # It has GPUs, and lacks something else on their node.
            only = {name: proposed[name] for name in proposed.keys() & {allocation.node}}
            return self._of_whole_gangs(only, priority)
        if isinstance(allocation, Reason) or isinstance(request, Reason):
            return {}
        if not request.places:
            return self._of_whole_gangs(proposed, priority)
        member = new_member(pod, pod.metadata.namespace)
        if self._is_in_progress(pod.metadata.uid, member):
            return {}
        together = self._together(proposed, priority)
        chosen: dict[str, Sequence[str]] = {}
        for name, victims in proposed.items():
            ledger = state.ledger_for(name, priority)
            usages = {usage.uid: usage for usage in state.usages.on(name) if usage.node == name}
            uids = [victim.uid for victim in victims.pods or ()]
            if ledger and (found := _choose_victims(ledger, usages, member, uids, together)):
                # Each request has uids of its own, also where they are equal.
                chosen[name] = tuple(map(intern, found))
        if chosen:
            self._keep(pod.metadata.uid, chosen)
        return {
            name: MetaVictims(list(map(MetaPod, uids)), proposed[name].num_pdb_violations)
            for name, uids in chosen.items()
        }

    def _of_whole_gangs(
        self, proposed: Mapping[str, MetaVictims], priority: int
    ) -> dict[str, MetaVictims]:
        """Return the nodes on which no gang loses a part, with all members where one is evicted."""
        together = self._together(proposed, priority)
        kept: dict[str, MetaVictims] = {}
        for name, victims in proposed.items():
            uids = [victim.uid for victim in victims.pods or ()]
            if (whole := _with_siblings(uids, together)) is not None:
                pods = list(map(MetaPod, whole))
                kept[name] = MetaVictims(pods, victims.num_pdb_violations)
        return kept

    def _together(self, nodes: Iterable[str], priority: int) -> _Together:
        """Return the members of gangs on some nodes, each with those that are evicted with it.

        Args:
            nodes: The nodes.
            priority: Of the preemptor; a gang with a member of no lower one is not evicted.
        """
        owners, usages = self._owners(), chain.from_iterable(map(self._state.usages.on, nodes))
        pods = map(self._state.pod_of, usages)
        gangs = {owners.key(pod) for pod in pods if pod and pod.gang is not None}
        together: dict[str, frozenset[str]] = {}
        for key in gangs:
            named = self._state.groups.of((key.namespace, key.name))
            members = [pod for pod in named if pod.settled and pod.usage if owners.key(pod) == key]
            uids = frozenset(pod.uid for pod in members)
            held = [pod.usage for pod in members if pod.usage]
            goes = len({usage.node for usage in held}) == 1 and all(
                usage.node and usage.priority < priority for usage in held
            )
            together |= dict.fromkeys(uids, uids if goes else frozenset())
        return together

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
            if any(map(self._state.usages.is_ending, held)):
                return True
            if node and not held:
                cleared.append(node)
        return not cleared or any(_fits(node, member) for node in cleared)


def _unit(uid: str, together: _Together) -> frozenset[str]:
    """Return the pods that are evicted if this one is; none: it must not be."""
    return together.get(uid, frozenset([uid]))


def _with_siblings(uids: Iterable[str], together: _Together) -> list[str] | None:
    """Return pods with the other members of their gangs; None: a gang must not be evicted."""
    groups = [_unit(uid, together) for uid in uids]
    return list(dict.fromkeys(chain.from_iterable(groups))) if all(groups) else None


def _choose_victims(
    node: NodeLedger,
    usages: Mapping[str, PodUsage],
    member: Member,
    proposed: list[str],
    together: _Together,
) -> list[str]:
    """Return the uids of the victims on a node; none where evictions are useless or needless.

    Follows the scheduler: release all pods of lower priority, then reprieve each pod that still
    fits beside the preemptor. Reprieved first are pods that were not proposed; among these members
    of gangs, then by priority, then pods on none of the proposed victims' cards, so that few pods
    are evicted. A victim that was proposed for a resource that is not counted here stays a victim;
    if it is of a gang that must stay, the node is of no use. Members of a gang are reprieved or
    evicted together.
    """
    priority = member.pod.spec.priority or 0
    lower = {
        uid
        for uid, pod in usages.items()
        if pod.places and pod.priority < priority and _unit(uid, together)
    }
    without_proposed = _release(node, proposed)
    uncounted = [uid for uid in proposed if not _is_counted(node, without_proposed, member, uid)]
    evicted = _with_siblings(uncounted, together)
    candidates = {uid for uid in proposed if _unit(uid, together)} | lower
    remaining = _release(node, candidates | set(evicted or ()))
    if evicted is None or not _fits(remaining, member):
        return []
    candidates &= node.holdings.keys() - set(evicted)
    cards = _cards(node, proposed)

    def reprieve_order(uids: frozenset[str]) -> tuple[object, ...]:
        pods = [usages[uid] for uid in uids if uid in usages]
        if not pods:
            return (True,)
        shares_card = not cards.isdisjoint(_cards(node, uids))
        is_proposed = not uids.isdisjoint(proposed)
        highest, oldest = max(pod.priority for pod in pods), min(pod.age for pod in pods)
        return is_proposed, pods[0].gang is None, -highest, shares_card, oldest

    units = {_unit(uid, together) for uid in candidates}
    for uids in sorted(units, key=reprieve_order):
        with_pods = _hold(remaining, (node.holdings[uid] for uid in uids if uid in node.holdings))
        if _fits(with_pods, member):
            remaining = with_pods
        else:
            evicted += sorted(uids)
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
        and all(node.amount_free(name) >= amount for name, amount in demand.others)
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


def _hold(node: NodeLedger, holdings: Iterable[Holding]) -> NodeLedger:
    for holding in holdings:
        node = node.hold(holding)
    return node


def _release(node: NodeLedger, uids: Iterable[str]) -> NodeLedger:
    for uid in uids:
        node = node.release(uid)
    return node
