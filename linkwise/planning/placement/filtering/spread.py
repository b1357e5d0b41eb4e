"""Topology spread: the pods of each domain, and how many more it may have."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

import numpy as np

from linkwise.cluster.account.node_ledger import NodeLedger
from linkwise.cluster.objects.selector import node_matches, tolerates
from linkwise.cluster.requests.neighbors.rules import SpreadConstraint
from linkwise.planning.placement.filtering.pod_columns import (
    Mask,
    column,
    has_labels,
    pods_selected,
    rows_of,
)
from linkwise.planning.placement.filtering.reasons import Reason
from linkwise.planning.placement.pods.member import Member
from linkwise.planning.placement.state.node_cache import Value
from linkwise.planning.placement.state.node_columns import Ints, labels
from linkwise.planning.placement.state.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Domains:
    """The domains of a constraint."""

    values: Ints
    """By node: the number of its domain; 0: none."""
    totals: Ints
    """By domain: the pods that count there."""
    present: Mask
    """By domain: it has nodes that count."""
    own: Ints
    """By node: the pods there that count."""
    is_few: bool
    """There are fewer than `minDomains`, so that the least counts as 0."""

    @property
    def least(self) -> int:
        """The pods of the domain with the fewest."""
        return self.least_of(self.totals)

    def least_of(self, totals: Ints) -> int:
        """Return the pods of the domain with the fewest, with these pods in each."""
        return 0 if self.is_few else int(totals[self.present].min())


def spread_masks(snapshot: Snapshot, member: Member) -> Iterable[tuple[Reason, Mask]]:
    """Yield the nodes that the constraints of a pod exclude, of a snapshot of all nodes."""
    rules = member.rules.spread
    yield Reason.SPREAD_LABEL, ~has_labels(snapshot, [rule.key for rule in rules])
    for rule in rules:
        domains = domains_of(snapshot, member, rule)
        itself = int(member.neighbor.is_in(rule.pods))
        counts = domains.totals[domains.values]
        excluded: Mask = counts + itself - domains.least > rule.max_skew
        if rule.honors_affinity and rule.min_domains > 1:
            # Once the pod is pinned, its node is the only domain that counts, which is too few.
            excluded |= domains.own + itself > rule.max_skew
        yield Reason.SPREAD, excluded


def spread_room(snapshot: Snapshot, member: Member) -> Ints | None:
    """Return how many pods like this one each node can take before others raise the least domain.

    None: its constraints do not limit it. A bound that holds in any order of binding for nodes that
    are domains of their own.
    """
    whole, rooms = snapshot.whole, list[Ints]()
    for constraint in member.rules.spread:
        if not member.neighbor.is_in(constraint.pods):
            continue
        domains = domains_of(whole, member, constraint)
        rooms.append(constraint.max_skew + domains.least - domains.totals[domains.values])
    if not rooms:
        return None
    room: Ints = np.stack(rooms).min(axis=0).clip(0)
    return room if snapshot.around is None else room[rows_of(whole, snapshot)]


def preferred_domains(snapshot: Snapshot, member: Member) -> Ints | None:
    """Return the pods in the domains of each node by the constraints that a pod prefers.

    Fewer are better; nodes without the label are the worst. None: it prefers none.
    """
    if not member.rules.preferred:
        return None
    whole = snapshot.whole
    crowds = np.zeros(len(whole.nodes), dtype=np.int64)
    for rule in member.rules.preferred:
        values = labels(whole, rule.key)
        counts = pods_selected(whole, rule.pods, is_spread=True)
        totals = np.bincount(values, counts).astype(np.int64)
        totals[0] = totals.sum() + 1
        crowds += totals[values]
    return crowds if snapshot.around is None else crowds[rows_of(whole, snapshot)]


def domains_of(snapshot: Snapshot, member: Member, rule: SpreadConstraint) -> Domains:
    """Return the domains of a constraint of a pod, of a snapshot of all nodes."""
    counts = pods_selected(snapshot, rule.pods, is_spread=True)
    if rule.pods.selector.is_everything:
        # Kubernetes counts no pod by an empty selector.
        counts = np.zeros_like(counts)
    included = has_labels(snapshot, [one.key for one in member.rules.spread])
    if rule.honors_affinity:
        included = included & _accepts(snapshot, member, "node affinity", _satisfies)
    if rule.honors_taints:
        included = included & _accepts(snapshot, member, "tolerations", _tolerated)
    values = labels(snapshot, rule.key)
    totals = np.bincount(values[included], counts[included], int(values.max()) + 1)
    present = np.bincount(values[included], minlength=len(totals)) > 0
    few = int(present.sum()) < max(rule.min_domains, 1)
    own = np.where(included, counts, 0)
    return Domains(values, totals.astype(np.int64), present, own, few)


def _accepts(
    snapshot: Snapshot, member: Member, what: str, accepts: Callable[[Member, NodeLedger], Value]
) -> Mask:
    compute = partial(accepts, member)
    return column(snapshot, (what, member.node_constraints), compute) > 0


def _satisfies(member: Member, node: NodeLedger) -> Value:
    return (node_matches(member.pod.spec, node.node.name, node.node.labels),)


def _tolerated(member: Member, node: NodeLedger) -> Value:
    tolerations = member.pod.spec.tolerations
    return (all(tolerates(tolerations, taint) for taint in node.node.taints),)
