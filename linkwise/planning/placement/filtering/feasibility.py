"""Evaluate all nodes for one group of pods: how many members each node fits, or why none.

The group is compared with the columns of all nodes together.
"""

from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from linkwise.cluster.account.node_ledger import NodeLedger
from linkwise.cluster.keys import NVIDIA_GPU, NVIDIA_GPU_SHARED
from linkwise.cluster.objects.selector import labels_read
from linkwise.cluster.requests.request import Family, Request
from linkwise.planning.placement.filtering.filters import (
    filter_node,
    gpu_capacity,
    hidden_capacity,
    sharing_serves,
)
from linkwise.planning.placement.filtering.neighbors import judge
from linkwise.planning.placement.filtering.reasons import Cause, Reason, Shortage
from linkwise.planning.placement.filtering.shares import preference, share_preference
from linkwise.planning.placement.filtering.volumes import (
    choices_of,
    satisfying,
    volume_capacities,
    volumes_fit,
)
from linkwise.planning.placement.pods.group import Group
from linkwise.planning.placement.pods.member import Member
from linkwise.planning.placement.state.node_cache import Value
from linkwise.planning.placement.state.node_columns import (
    Ints,
    NodeColumns,
    amount_free,
    bounded,
    labels,
    node_columns,
)
from linkwise.planning.placement.state.snapshot import Snapshot

_COUNTED = (NVIDIA_GPU, NVIDIA_GPU_SHARED)
"""Resources whose presence is read: their plugins choose the GPUs."""
_REASONS = tuple(Reason)
_CODE = {reason: code for code, reason in enumerate(_REASONS, start=1)}
"""The number of a reason in a column; 0 stands for none."""
_FIRST_RESOURCE = len(_REASONS) + 1
"""The number of the first of the other resources that a group requests, in their order."""
_LABELS_MAX = 8
"""Labels by which nodes are grouped; for pods that read more, every node is filtered."""


@dataclass(frozen=True, slots=True)
class Feasibility:
    """The evaluation of every node for a group."""

    snapshot: Snapshot
    capacity: Ints
    """By node of `snapshot.nodes`: how many members it fits."""
    codes: Ints
    """By node: the number of the reason why it fits none."""
    resources: tuple[str, ...] = ()
    """The other resources that members request; each has a number after those of all reasons."""

    @property
    def feasible(self) -> Ints:
        """The nodes that fit at least one member, as indices in `snapshot.nodes`."""
        return np.flatnonzero(self.capacity)

    @property
    def blocked(self) -> Counter[Cause]:
        """Number of nodes that fit none, by reason."""
        counts = np.bincount(self.codes).tolist()
        causes: list[Cause] = [*_REASONS, *map(Shortage, self.resources)]
        return Counter({causes[i]: n for i, n in enumerate(counts[1:]) if n})


def feasibility_of(snapshot: Snapshot, group: Group) -> Feasibility:
    """Return how many members each node fits now.

    Members with the same GPUs but other CPU or memory are all counted as the largest of them, so
    that any of them fits. For shares and replicas a node fits 1 or none, since each pod changes the
    node for the next one.
    """
    if not snapshot.nodes:
        return _nothing(snapshot)
    # The first reason stays: one that no ended pod can remove, then GPUs, then CPU and the like. A
    # negative capacity is the code of a reason, so that a column carries both.
    columns, codes = node_columns(snapshot), _filter_codes(snapshot, group)
    gpus = _gpu_capacity(snapshot, group.representatives[0].request, columns)
    codes = np.where(codes == 0, np.where(gpus < 0, -gpus, 0), codes)
    others = _other_capacity(snapshot, group, columns)
    codes = np.where(codes == 0, np.where(others < 0, -others, 0), codes)
    capacity = np.minimum(gpus, others)
    if group.coupling and group.coupling.room is not None:
        capacity = np.minimum(capacity, group.coupling.room)
    return Feasibility(snapshot, np.where(codes == 0, capacity, 0), codes, _resources(group))


def feasibility_of_all(snapshot: Snapshot, group: Group) -> Feasibility:
    """Return which nodes fit all members, each with whole GPUs, now."""
    if not snapshot.nodes:
        return _nothing(snapshot)
    columns, total = node_columns(snapshot), group.total
    amounts = enumerate(total.others, start=_FIRST_RESOURCE)
    codes = _filter_codes(snapshot, group)
    # On one node only sums count, so this is exact where members differ, too. Idle GPUs include the
    # unhealthy ones, so they come first: where there are enough, only healthy GPUs are missing.
    for code, fits in (
        (_CODE[Reason.GPUS], columns.idle >= bounded(group.gpus)),
        (_CODE[Reason.UNUSABLE], columns.free >= bounded(group.gpus)),
        (_CODE[Reason.PODS], columns.pods >= group.size),
        (_CODE[Reason.CPU], not total.cpu or columns.cpu >= bounded(total.cpu)),
        (_CODE[Reason.MEMORY], not total.memory or columns.memory >= bounded(total.memory)),
        *((code, amount_free(snapshot, name) >= bounded(n)) for code, (name, n) in amounts),
        (_CODE[Reason.PORTS], not group.has_port_conflict and _fits_ports(snapshot, group)),
        (_CODE[Reason.APART], _has_room(group)),
        *((_CODE[reason], fits) for reason, fits in volumes_fit(snapshot, group)),
    ):
        codes = np.where((codes == 0) & np.logical_not(fits), code, codes)
    capacity = np.where(codes == 0, group.size, 0)
    return Feasibility(snapshot, capacity, codes, _resources(group))


def _has_room(group: Group) -> NDArray[np.bool_] | bool:
    """Return where the rules of the members about each other allow all of them."""
    coupling = group.coupling
    return coupling is None or coupling.room is None or coupling.room >= group.size


def excluded(snapshot: Snapshot, group: Group) -> NDArray[np.bool_]:
    """Return for each node whether it is filtered out, regardless of what is free there."""
    column: NDArray[np.bool_] = _filter_codes(snapshot, group) != 0
    return column


def preferred_node(snapshot: Snapshot, member: Member, rows: Ints) -> int:
    """Return the best of some nodes, at least one, for a pod without whole GPUs."""
    for order in _share_columns(snapshot, member.request)[1:]:
        values = order[rows]
        rows = rows[values == values.min()]
    return int(rows[0])


def _filter_codes(snapshot: Snapshot, group: Group) -> Ints:
    """Return why each node is filtered out for the group, whatever is free there."""
    codes = np.zeros(len(snapshot.nodes), dtype=np.int64)
    for member in group.representatives:
        codes = np.where(codes == 0, _filter_codes_of(snapshot, member), codes)
    for choice, reason in choices_of(group):
        codes = np.where((codes == 0) & ~satisfying(snapshot, choice), _CODE[reason], codes)
    if reserved := group.options.reserved:
        is_reserved = snapshot.cache.get_or_compute(
            ("reserved", reserved),
            snapshot.nodes,
            lambda node: (node.node.name in reserved,),
            np.int64,
        )[0]
        codes = np.where((codes == 0) & (is_reserved > 0), _CODE[Reason.RESERVED], codes)
    for reason, mask in judge(snapshot, group.members):
        codes = np.where((codes == 0) & mask, _CODE[reason], codes)
    return codes


def _filter_codes_of(snapshot: Snapshot, member: Member) -> Ints:
    """Return why each node is filtered out for a pod, whatever is free there.

    A new filter is run once for all nodes that are equal in what the pod reads of them: users can
    create pods that all have other constraints.
    """
    key, compute = _constraints(member), partial(_filter_code, member)
    cache, nodes = snapshot.cache, snapshot.nodes
    read = labels_read(member.pod.spec, _LABELS_MAX)
    if read is not None and not cache.has(key):
        # Nodes stay equal while they agree in each fact and label that the filter reads, so one of
        # them answers for all. `np.unique` renumbers the pairs, which keeps products in 64 bits.
        equal = cache.get_or_compute("facts", nodes, partial(_facts, cache.number), np.int64)[0]
        for label in sorted(read):
            values = labels(snapshot, label)
            pairs = equal * (int(values.max()) + 1) + values
            equal = np.unique(pairs, return_inverse=True)[1]
        _, first, place = np.unique(equal, return_index=True, return_inverse=True)
        few = tuple(nodes[row] for row in first.tolist())
        codes = cache.fresh().get_or_compute(key, few, compute, np.int64)
        cache.put(key, nodes, codes[:, place])
    column: Ints = cache.get_or_compute(key, nodes, compute, np.int64)[0]
    return column


def _facts(number: Callable[[Hashable], int], node: NodeLedger) -> Value:
    """Return a number for all facts that `filter_node` reads except name and labels."""
    facts = node.node
    closed = hidden_capacity(node), bool(node.unaccounted), facts.ready, facts.unschedulable
    kind = facts.mode, facts.gpu_resource, facts.is_counted, facts.is_claims, facts.selected == 0
    offered = facts.parts is None, *(name in facts.resources for name in _COUNTED)
    return (number(("facts", *kind, *offered, facts.taints, *closed)),)


def _filter_code(member: Member, node: NodeLedger) -> Value:
    reason = filter_node(node, member)
    return (_CODE[reason] if reason else 0,)


def _constraints(member: Member) -> tuple[object, ...]:
    """Return everything that `filter_node` reads of a pod."""
    request = member.request
    asks = request.family, request.resource, bool(request.core), member.needs_whole_gpus
    return *asks, request.by_count, request.by_claim, member.node_constraints


def _gpu_capacity(snapshot: Snapshot, request: Request, columns: NodeColumns) -> Ints:
    """Return how often the GPUs of each node satisfy a request; minus the reason's code if not.

    The same as `gpu_capacity`, for all nodes.
    """
    if request.family is Family.WHOLE:
        # Where GPUs are counted, pods may have more than there are.
        capacity: Ints = np.maximum(columns.free, 0) // bounded(request.gpus)
        is_idle = columns.idle >= bounded(request.gpus)
        short = np.where(is_idle, -_CODE[Reason.UNUSABLE], -_CODE[Reason.GPUS])
        return np.where(capacity == 0, short, capacity)
    shares: Ints = _share_columns(snapshot, request)[0].astype(np.int64)
    return shares


def _share_columns(snapshot: Snapshot, request: Request) -> NDArray[np.float64]:
    """Return each node's capacity for requests other than whole GPUs, then its preference."""
    amounts = request.gpus, request.memory, request.core
    key = (request.family, request.resource, *amounts, snapshot.preferences.placement)
    share_key = share_preference(request) if request.family is Family.SHARE else None

    def compute(node: NodeLedger) -> Value:
        # Shares have hundreds of different amounts, each of which looks at every changed node.
        if share_key and sharing_serves(node, request) and (ranks := share_key(node)):
            return (1, *ranks)
        capacity = gpu_capacity(node, request)
        if isinstance(capacity, Reason):
            return (-_CODE[capacity], 0, 0, 0)
        ranks = preference(node, request, snapshot.preferences.placement)
        return (capacity, *ranks, *(0,) * (3 - len(ranks)))

    return snapshot.cache.get_or_compute(key, snapshot.nodes, compute, np.float64)


def _other_capacity(snapshot: Snapshot, group: Group, columns: NodeColumns) -> Ints:
    """Return how many members fit each node by all but GPUs; minus the reason's code if none."""
    demand = group.largest
    limits = [(columns.pods, _CODE[Reason.PODS])]
    if demand.cpu:
        limits.append((columns.cpu // bounded(demand.cpu), _CODE[Reason.CPU]))
    if demand.memory:
        limits.append((columns.memory // bounded(demand.memory), _CODE[Reason.MEMORY]))
    for code, (name, amount) in enumerate(demand.others, start=_FIRST_RESOURCE):
        limits.append((amount_free(snapshot, name) // bounded(amount), code))
    if group.has_port_conflict:
        limits.append((np.ones_like(columns.pods), _CODE[Reason.PORTS]))
    limits += [(fits, _CODE[reason]) for fits, reason in volume_capacities(snapshot, group)]
    # Each member counts as the largest one: a lower bound, so that any members of the group fit.
    table = np.stack([limit for limit, _ in limits])
    codes = np.array([-code for _, code in limits])
    capacity: Ints = table.min(axis=0)
    short = np.flatnonzero(capacity <= 0)
    capacity[short] = codes[table[:, short].argmin(axis=0)]
    if not group.total.ports:
        return capacity
    return np.where(_fits_ports(snapshot, group), capacity, -_CODE[Reason.PORTS])


def _resources(group: Group) -> tuple[str, ...]:
    return tuple(name for name, _ in group.total.others)


def _fits_ports(snapshot: Snapshot, group: Group) -> NDArray[np.bool_]:
    ports = group.total.ports
    if not ports:
        return np.ones(len(snapshot.nodes), dtype=np.bool_)

    def compute(node: NodeLedger) -> Value:
        return (node.takes_ports(ports),)

    key = "ports", ports
    fits: Ints = snapshot.cache.get_or_compute(key, snapshot.nodes, compute, np.int64)[0]
    return fits > 0


def _nothing(snapshot: Snapshot) -> Feasibility:
    none = np.zeros(0, dtype=np.int64)
    return Feasibility(snapshot, none, none)
