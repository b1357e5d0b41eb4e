"""All nodes at once, as one group of pods finds them: how many members each takes, or why none.

In columns, one entry a node: what depends on a node alone is asked once for each of its ledgers,
and what depends on the group is compared for all nodes together.
"""

from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from cluster.ledger import NodeLedger
from cluster.request import Family, Request
from cluster.selector import labels_read
from scorer.placement.filters import filter_node, gpu_capacity
from scorer.placement.group import Group
from scorer.placement.member import Member
from scorer.placement.node_cache import Value
from scorer.placement.reasons import Reason
from scorer.placement.shares import preference
from scorer.placement.snapshot import Snapshot

Ints: TypeAlias = NDArray[np.int64]

_REASONS = tuple(Reason)
_CODE = {reason: code for code, reason in enumerate(_REASONS, start=1)}
"""What stands for a reason in a column; 0 for none."""
_LABELS_MAX = 8
"""Labels by which nodes are grouped; for pods that look at more, every node is asked."""
_MOST = 1 << 62
"""Amounts beyond it, which no machine has, count as so much: columns hold 64 bits."""


@dataclass(frozen=True, slots=True)
class Feasibility:
    """What became of looking at every node."""

    snapshot: Snapshot
    room: Ints
    """By node of `snapshot.nodes`: how many members it takes."""
    why: Ints
    """By node: the code of the reason why it takes none."""

    @property
    def able(self) -> Ints:
        """The nodes that take some, as places in `snapshot.nodes`."""
        return np.flatnonzero(self.room)

    @property
    def blocked(self) -> Counter[Reason]:
        """How many nodes take none for each reason."""
        counts = np.bincount(self.why, minlength=len(_REASONS) + 1).tolist()
        return Counter({_REASONS[i]: n for i, n in enumerate(counts[1:]) if n})


def feasibility_of(snapshot: Snapshot, group: Group) -> Feasibility:
    """Return how many members each node takes now.

    Members with the same GPUs but other CPU or memory are all counted as the largest of them, so
    that any of them may come. For shares and replicas a node takes 1 or none: each pod changes what
    the next one finds.
    """
    if not snapshot.nodes:
        return _nothing(snapshot)
    columns, why = _columns(snapshot), _obstacles(snapshot, group)
    gpus = _gpu_room(snapshot, group.representatives[0].request, columns)
    why = np.where(why == 0, np.where(gpus < 0, -gpus, 0), why)
    others = _other_room(snapshot, group, columns)
    why = np.where(why == 0, np.where(others < 0, -others, 0), why)
    return Feasibility(snapshot, np.where(why == 0, np.minimum(gpus, others), 0), why)


def feasibility_of_all(snapshot: Snapshot, group: Group) -> Feasibility:
    """Return which nodes take all members, each with whole GPUs, now."""
    if not snapshot.nodes:
        return _nothing(snapshot)
    columns, why, total = _columns(snapshot), _obstacles(snapshot, group), group.total
    for reason, fits in (
        (Reason.GPUS, columns[_IDLE] >= _bounded(group.gpus)),
        (Reason.UNUSABLE, columns[_FREE] >= _bounded(group.gpus)),
        (Reason.PODS, columns[_PODS] >= group.size),
        (Reason.CPU, not total.cpu or columns[_CPU] >= _bounded(total.cpu)),
        (Reason.MEMORY, not total.memory or columns[_MEMORY] >= _bounded(total.memory)),
        (Reason.PORTS, not group.apart and _takes_ports(snapshot, group)),
    ):
        why = np.where((why == 0) & np.logical_not(fits), _CODE[reason], why)
    return Feasibility(snapshot, np.where(why == 0, group.size, 0), why)


def free_gpus(snapshot: Snapshot) -> Ints:
    """Return how many GPUs each node could give as a whole."""
    return _column(snapshot, _FREE)


def states(snapshot: Snapshot) -> Ints:
    """Return the place of each node's machine and free GPUs in `memo.states`; -1: it has none."""
    return _column(snapshot, _STATE)


def labels(snapshot: Snapshot, label: str) -> Ints:
    """Return a number for each node's value of a label; 0 where it has none."""
    number = snapshot.cache.number

    def ask(node: NodeLedger) -> Value:
        value = node.node.labels.get(label)
        return (number(("label", value)) if value is not None else 0,)

    question, nodes = ("label", label), snapshot.nodes
    if nodes and not snapshot.cache.has(question):
        # A pod may name any label, and there are other labels in each.
        values = (node.node.labels.get(label) for node in nodes)
        numbers = [0 if value is None else number(("label", value)) for value in values]
        snapshot.cache.put(question, nodes, np.array([numbers], dtype=np.int64))
    found: Ints = snapshot.cache.get_or_compute(question, nodes, ask, np.int64)[0]
    return found


def closed(snapshot: Snapshot, group: Group) -> NDArray[np.bool_]:
    """Tell of each node whether it takes no such pods, whatever is free there."""
    found: NDArray[np.bool_] = _obstacles(snapshot, group) != 0
    return found


def best_by_preference(snapshot: Snapshot, member: Member, able: Ints) -> int:
    """Return which of some nodes, at least one, a pod without whole GPUs prefers."""
    rows = able
    for order in _unlike(snapshot, member.request)[1:]:
        values = order[rows]
        rows = rows[values == values.min()]
    return int(rows[0])


_FREE, _IDLE, _STATE, _PODS, _CPU, _MEMORY = range(6)


def _column(snapshot: Snapshot, number: int) -> Ints:
    column: Ints = _columns(snapshot)[number] if snapshot.nodes else np.zeros(0, dtype=np.int64)
    return column


def _columns(snapshot: Snapshot) -> Ints:
    """Return what placement compares of each node."""
    tables, state = snapshot.tables, snapshot.cache.state

    def ask(node: NodeLedger) -> Value:
        free, table = node.free_mask, tables.get(node.node.name)
        return (
            free.bit_count(),
            node.mended.free_mask.bit_count(),
            -1 if table is None else state(table, free),
            node.pods_free,
            _bounded(node.cpu_free),
            _bounded(node.memory_free_bytes),
        )

    return snapshot.cache.get_or_compute("columns", snapshot.nodes, ask, np.int64)


def _obstacles(snapshot: Snapshot, group: Group) -> Ints:
    """Return why each node takes none of the group, whatever is free there."""
    found = np.zeros(len(snapshot.nodes), dtype=np.int64)
    for kind in group.representatives:
        found = np.where(found == 0, _obstacles_of(snapshot, kind), found)
    if kept := snapshot.reserved:
        closed = snapshot.cache.get_or_compute(
            ("kept", kept), snapshot.nodes, lambda node: (node.node.name in kept,), np.int64
        )[0]
        found = np.where((found == 0) & (closed > 0), _CODE[Reason.KEPT], found)
    return found


def _obstacles_of(snapshot: Snapshot, kind: Member) -> Ints:
    """Return why each node takes no such pod, whatever is free there.

    What was never asked is asked once for all nodes that are alike in what the pod looks at, since
    pods can be made that all ask for something else.
    """
    question, ask = _constraints(kind), partial(_obstacle, kind)
    memo, nodes, read = snapshot.cache, snapshot.nodes, labels_read(kind.pod.spec, _LABELS_MAX)
    if read is not None and not memo.has(question):
        alike = memo.get_or_compute("facts", nodes, partial(_facts, memo.number), np.int64)[0]
        for label in sorted(read):
            values = labels(snapshot, label)
            pairs = alike * (int(values.max()) + 1) + values
            alike = np.unique(pairs, return_inverse=True)[1]
        _, first, place = np.unique(alike, return_index=True, return_inverse=True)
        few = tuple(nodes[row] for row in first.tolist())
        answers = memo.fresh().get_or_compute(question, few, ask, np.int64)
        memo.put(question, nodes, answers[:, place])
    found: Ints = memo.get_or_compute(question, nodes, ask, np.int64)[0]
    return found


def _facts(number: Callable[[Hashable], int], node: NodeLedger) -> Value:
    """Return a number for all that `room.obstacle` reads of a node but its name and labels."""
    one = node.node
    shut = bool(node.unaccounted), one.preparing, one.ready, one.unschedulable
    return (number(("facts", one.mode, one.taints, *shut)),)


def _obstacle(kind: Member, node: NodeLedger) -> Value:
    reason = filter_node(node, kind)
    return (_CODE[reason] if reason else 0,)


def _constraints(kind: Member) -> tuple[object, ...]:
    """Return everything that `room.obstacle` reads of a pod."""
    return kind.request.family, bool(kind.request.core), kind.node_constraints


def _gpu_room(snapshot: Snapshot, request: Request, columns: Ints) -> Ints:
    """Return how often each node satisfies a request by its GPUs; minus the reason's code if not.

    As `room.gpu_room`.
    """
    if request.family is Family.WHOLE:
        found: Ints = columns[_FREE] // _bounded(request.gpus)
        idle = columns[_IDLE] >= _bounded(request.gpus)
        short = np.where(idle, -_CODE[Reason.UNUSABLE], -_CODE[Reason.GPUS])
        return np.where(found == 0, short, found)
    unlike: Ints = _unlike(snapshot, request)[0].astype(np.int64)
    return unlike


def _unlike(snapshot: Snapshot, request: Request) -> NDArray[np.float64]:
    """Return of each node its room for what is not whole GPUs, then how it ranks for it."""
    amounts = request.gpus, request.memory, request.core
    asked = (request.family, request.counted, *amounts, snapshot.placement)

    def ask(node: NodeLedger) -> Value:
        found = gpu_capacity(node, request)
        if isinstance(found, Reason):
            return (-_CODE[found], 0, 0, 0)
        ranks = preference(node, request, snapshot.placement)
        return (found, *ranks, *(0,) * (3 - len(ranks)))

    return snapshot.cache.get_or_compute(asked, snapshot.nodes, ask, np.float64)


def _other_room(snapshot: Snapshot, group: Group, columns: Ints) -> Ints:
    """Return how many members fit each node by all but GPUs; minus the reason's code where none."""
    demand = group.largest
    limits = [(columns[_PODS], Reason.PODS)]
    if demand.cpu:
        limits.append((columns[_CPU] // _bounded(demand.cpu), Reason.CPU))
    if demand.memory:
        limits.append((columns[_MEMORY] // _bounded(demand.memory), Reason.MEMORY))
    if group.apart:
        limits.append((np.ones_like(columns[_PODS]), Reason.PORTS))
    table = np.stack([limit for limit, _ in limits])
    codes = np.array([-_CODE[reason] for _, reason in limits])
    least = table.min(axis=0)
    found = np.where(least > 0, least, codes[table.argmin(axis=0)])
    return np.where(_takes_ports(snapshot, group), found, -_CODE[Reason.PORTS])


def _takes_ports(snapshot: Snapshot, group: Group) -> NDArray[np.bool_]:
    ports = group.total.ports
    if not ports:
        return np.ones(len(snapshot.nodes), dtype=np.bool_)

    def ask(node: NodeLedger) -> Value:
        return (node.takes_ports(ports),)

    found: NDArray[np.bool_] = (
        snapshot.cache.get_or_compute(("ports", ports), snapshot.nodes, ask, np.int64)[0] > 0
    )
    return found


def _bounded(amount: int) -> int:
    return max(-_MOST, min(amount, _MOST))


def _nothing(snapshot: Snapshot) -> Feasibility:
    none = np.zeros(0, dtype=np.int64)
    return Feasibility(snapshot, none, none)
