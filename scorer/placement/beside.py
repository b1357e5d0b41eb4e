"""Plan members of a gang whose other members have their GPUs: replacements, and later ones.

They go to the nodes of the others, where they make the whole gang fastest. A node where NVIDIA's
plugin chooses the GPUs, or where GPUs are shared, is filled first if it has most of the others.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from cluster.gang import Link
from scorer.placement.group import new_group
from scorer.placement.member import Member
from scorer.placement.node_assignment import Candidate, NodeAssignment, bandwidth_over
from scorer.placement.placements import new_plan
from scorer.placement.result import Placement, Plan, Refusal
from scorer.placement.schedule import plan
from scorer.placement.snapshot import Beside, Snapshot
from topology.machine import mask_of

EACH_MAX = 1024
"""Most pairs of members and nodes that are planned one by one: about 0.5 s."""


class Sibling(NamedTuple):
    """A member of a gang that has its GPUs."""

    node: str
    gpus: tuple[int, ...] = ()
    """Empty where NVIDIA's plugin chooses them."""


@dataclass(frozen=True, slots=True)
class _Homes:
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

    def plus(self, placements: Iterable[Placement]) -> "_Homes":
        """Return the homes with more members."""
        masks, counts = dict(self.masks), self.counts.copy()
        for placement in placements:
            counts[placement.node] += 1
            masks[placement.node] = masks.get(placement.node, 0) | mask_of(placement.gpus)
        return _Homes(masks, counts)


def plan_beside(
    snapshot: Snapshot,
    members: Sequence[Member],
    siblings: Iterable[Sibling],
    *,
    link: Link = Link.BEST,
) -> Plan | Refusal:
    """Plan members of a gang beside those that have their GPUs; anywhere if they do not fit there.

    Args:
        snapshot: The cluster.
        members: As in `plan`.
        siblings: The others; without any, this is `plan`.
        link: As in `plan`.

    Cost: a plan on one node for each node of the others; then one for each member and node, at most
    `EACH_MAX`; then one on all nodes.
    """
    homes = _homes(snapshot, siblings)
    near = _on_best_home(snapshot, members, homes, link)
    if isinstance(near, Plan):
        return near
    if near is not None and link is Link.ONE_NODE:
        return replace(near, reason=f"its gang stays on node {homes.order[0]}: {near.reason}")
    return _one_by_one(snapshot, members, homes, link) or plan(snapshot, members, link=link)


def _homes(snapshot: Snapshot, siblings: Iterable[Sibling]) -> _Homes:
    masks: dict[str, int] = {}
    counts = Counter[str]()
    for node, gpus in siblings:
        if node in snapshot.ledger.nodes:
            table = snapshot.tables.get(node)
            present = (1 << table.n) - 1 if table else 0
            masks[node] = masks.get(node, 0) | (mask_of(gpus) & present)
            counts[node] += 1
    return _Homes(masks, counts)


def _on_best_home(
    snapshot: Snapshot, members: Sequence[Member], homes: _Homes, link: Link
) -> Plan | Refusal | None:
    """Plan all members on the node of the others that is best; None without any node."""
    is_ranked = homes.are_sets_known and all(member.gpus for member in members)
    plans: list[Plan] = []
    refusal = None
    for node in homes.order:
        beside = Beside(homes.masks[node] if is_ranked else 0, len(homes.masks) > 1)
        near = plan(snapshot.only(node, beside), members, link=link)
        if isinstance(near, Refusal):
            refusal = refusal or near
        elif not is_ranked:
            return near
        else:
            plans.append(near)
    if not plans:
        return refusal
    return min(plans, key=lambda near: _rank(snapshot, homes.plus(near.placements)))


def _rank(snapshot: Snapshot, homes: _Homes) -> tuple[float, list[int]]:
    """Return the key that orders the results for a gang: the fastest, then the most even."""
    assignments = [
        NodeAssignment(Candidate(snapshot.ledger.nodes[node], snapshot.tables[node], 0), 0, mask)
        for node, mask in homes.masks.items()
    ]
    bandwidth = bandwidth_over(assignments, snapshot.nic_bandwidth)
    return -(bandwidth or 0.0), sorted(homes.counts.values(), reverse=True)


def _one_by_one(
    snapshot: Snapshot, members: Sequence[Member], homes: _Homes, link: Link
) -> Plan | None:
    """Plan each member on the node of the others that is best for it; None if not all fit."""
    group = new_group(members)
    if not 1 < group.size * len(homes.counts) <= EACH_MAX or group.size == 1:
        return None
    placed: dict[int, Placement] = {}
    later = snapshot
    for place, member in sorted(enumerate(members), key=lambda pair: -pair[1].gpus):
        near = _on_best_home(later, [member], homes, link)
        if not isinstance(near, Plan):
            return None
        (placed[place],) = near.placements
        later, homes = near.applied_to(later), homes.plus(near.placements)
    placements = [placed[place] for place in range(group.size)]
    return new_plan(snapshot, placements, exact=False, one_by_one=True)
