"""Plan members of a gang whose other members have their GPUs: replacements, and later ones.

They go to the nodes of the others, where they make the whole gang fastest. A node where NVIDIA's
plugin chooses the GPUs, or where GPUs are shared, is filled first if it has most of the others.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from linkwise.cluster.allocations.record import Allocation
from linkwise.cluster.gang import Link
from linkwise.planning.placement.assignment.node_assignment import NodeAssignment
from linkwise.planning.placement.bandwidth import bandwidth_over
from linkwise.planning.placement.options import DEFAULT, PlanOptions, SiblingGPUs
from linkwise.planning.placement.placements import new_plan
from linkwise.planning.placement.pods.group import new_group
from linkwise.planning.placement.pods.member import Member
from linkwise.planning.placement.result import Placement, Plan, Refusal
from linkwise.planning.placement.schedule import plan
from linkwise.planning.placement.state.snapshot import Snapshot
from linkwise.topology.machine import mask_of

EACH_MAX = 1024
"""Most pairs of members and nodes that are planned one by one: about 0.5 s."""


@dataclass(frozen=True, slots=True)
class _SiblingNodes:
    """The nodes of the members that have their GPUs."""

    masks: dict[str, int]
    """Their GPUs on each node."""
    counts: Counter[str]
    """Their number on each node."""

    @property
    def order(self) -> list[str]:
        """The nodes; the one with most members first."""
        return sorted(self.counts, key=lambda node: (-self.counts[node], node))

    @property
    def are_sets_known(self) -> bool:
        """Linkwise chose all their GPUs."""
        return all(self.masks.values())

    def plus(self, placements: Iterable[Placement]) -> "_SiblingNodes":
        """Return these nodes with more members on them."""
        masks, counts = dict(self.masks), self.counts.copy()
        for placement in placements:
            counts[placement.node] += 1
            masks[placement.node] = masks.get(placement.node, 0) | mask_of(placement.gpus.indices)
        return _SiblingNodes(masks, counts)


def plan_with_siblings(
    snapshot: Snapshot,
    members: Sequence[Member],
    siblings: Iterable[Allocation],
    options: PlanOptions = DEFAULT,
) -> Plan | Refusal:
    """Plan members of a gang beside those that have their GPUs; anywhere if they do not fit there.

    Args:
        snapshot: The cluster.
        members: As in `plan`.
        siblings: The others; without any, this is `plan`.
        options: As in `plan`, without siblings.

    Cost: a plan on one node for each node of the others; then one for each member and node, at most
    `EACH_MAX`; then one on all nodes.
    """
    sibling_nodes = _sibling_nodes(snapshot, siblings)
    near = _on_sibling_node(snapshot, members, sibling_nodes, options)
    if isinstance(near, Plan):
        return near
    if near is not None and options.link is Link.ONE_NODE:
        return replace(
            near, reason=f"its gang stays on node {sibling_nodes.order[0]}: {near.reason}"
        )
    one_by_one = _one_by_one(snapshot, members, sibling_nodes, options)
    return one_by_one or plan(snapshot, members, options)


def _sibling_nodes(snapshot: Snapshot, siblings: Iterable[Allocation]) -> _SiblingNodes:
    masks: dict[str, int] = {}
    counts = Counter[str]()
    for sibling in siblings:
        node = sibling.node
        if node in snapshot.ledger.nodes:
            table = snapshot.tables.get(node)
            present = (1 << table.n) - 1 if table else 0
            masks[node] = masks.get(node, 0) | (mask_of(sibling.gpus.indices) & present)
            counts[node] += 1
    return _SiblingNodes(masks, counts)


def _on_sibling_node(
    snapshot: Snapshot,
    members: Sequence[Member],
    sibling_nodes: _SiblingNodes,
    options: PlanOptions,
) -> Plan | Refusal | None:
    """Plan all members on the node of the others that is best; None without any node."""
    # `plan` ranks the new members, but the gang is as fast as all of its GPUs. So each node is
    # planned alone, and the results are compared as the whole gang would have them. Without known
    # sets there is no bandwidth: the node with most members is taken, to keep the gang together.
    is_ranked = sibling_nodes.are_sets_known and all(member.gpus for member in members)
    plans: list[Plan] = []
    refusal = None
    for node in sibling_nodes.order:
        mask = sibling_nodes.masks[node] if is_ranked else 0
        siblings = SiblingGPUs(mask, multi_node=len(sibling_nodes.masks) > 1)
        near = plan(snapshot.only(node), members, replace(options, siblings=siblings))
        if isinstance(near, Refusal):
            refusal = refusal or near
        elif not is_ranked:
            return near
        else:
            plans.append(near)
    if not plans:
        return refusal
    return min(plans, key=lambda near: _rank(snapshot, sibling_nodes.plus(near.placements)))


def _rank(snapshot: Snapshot, sibling_nodes: _SiblingNodes) -> tuple[float, list[int]]:
    """Return the key that orders the results for a gang: the fastest, then the most even."""
    assignments = [
        NodeAssignment(snapshot.ledger.nodes[node], snapshot.tables[node], mask)
        for node, mask in sibling_nodes.masks.items()
    ]
    bandwidth = bandwidth_over(assignments, snapshot.preferences.nic_bandwidth)
    return -(bandwidth.value or 0.0), sorted(sibling_nodes.counts.values(), reverse=True)


def _one_by_one(
    snapshot: Snapshot,
    members: Sequence[Member],
    sibling_nodes: _SiblingNodes,
    options: PlanOptions,
) -> Plan | None:
    """Plan each member on the node of the others that is best for it; None if not all fit."""
    group = new_group(members)
    # A member alone was tried on each of these nodes already.
    if not 1 < group.size * len(sibling_nodes.counts) <= EACH_MAX or group.size == 1:
        return None
    placed: dict[int, Placement] = {}
    later = snapshot
    # The largest first, since the fewest nodes fit it. A member that is placed counts as a sibling
    # for the next one, which then completes the set on its node.
    for place, member in sorted(enumerate(members), key=lambda pair: -pair[1].gpus):
        near = _on_sibling_node(later, [member], sibling_nodes, options)
        if not isinstance(near, Plan):
            return None
        (placed[place],) = near.placements
        later, sibling_nodes = near.applied_to(later), sibling_nodes.plus(near.placements)
    placements = [placed[place] for place in range(group.size)]
    return new_plan(snapshot, placements, exact=False, one_by_one=True)
