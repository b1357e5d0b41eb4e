"""Other schedulers of Kubernetes, from their documentation and public source."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from linkwise.cluster.account.node_ledger import NodeLedger
from linkwise.planning.placement.pods.member import Member
from linkwise.planning.placement.result import Placement
from linkwise.planning.placement.state.node_cache import Value
from linkwise.planning.placement.state.node_columns import labels
from linkwise.planning.placement.state.snapshot import Snapshot
from linkwise.replay.fleet import domain_label
from linkwise.replay.job import MILLI, Shape
from linkwise.replay.policies.policy import PodByPod, Rows, lowest_indices, placed
from linkwise.replay.policies.view import Floats, Ints, View, view_of
from linkwise.topology.choice import ChoiceMode, ChoiceRequest, choose
from linkwise.topology.machine import gpus_of, mask_of

_HAMI_SLOTS = 10
"""Pods that share a GPU by default (HAMi, `deviceSplitCount`)."""

_MOST = 1 << 20
"""No node takes as many pods."""


def hami_node(view: View, _shape: Shape, rows: Rows) -> Floats:
    """Score nodes as HAMi does for binpack: by slots, compute and memory in use before the pod.

    `pkg/scheduler/policy/node_policy.go` of Project-HAMi/HAMi: 10 × (slots + compute + memory),
    each as a part of the node. A share has the same part of compute and of memory.
    """
    gpus = view.gpus[rows]
    slots = view.holders[:, rows].sum(axis=0) / (_HAMI_SLOTS * gpus)
    used = 1 - view.total_free[rows] / (MILLI * gpus)
    score: Floats = 10 * (slots + 2 * used)
    return score


def hami_spread_node(view: View, shape: Shape, rows: Rows) -> Floats:
    """Score nodes as HAMi does for spread: the opposite of binpack."""
    return -hami_node(view, shape, rows)


def hami_binpack_cards(view: View, shape: Shape, row: int) -> list[int]:
    """Choose the GPUs with the highest score of HAMi: slots, compute and memory with the pod.

    `pkg/scheduler/policy/gpu_policy.go`; the limit of ten pods on a GPU, and the order by NUMA node
    before the score, are left out. Where nodes give out whole GPUs, pair scores decide.
    """
    if not view.node(row).mode.shares_memory:
        return _hami_linked_cards(view, shape, row)
    cards = view.cards(row, shape.milli)
    return sorted(cards, key=lambda i: (-_hami_card(view, row, i), i))[: shape.gpus]


def hami_spread_cards(view: View, shape: Shape, row: int) -> list[int]:
    """Choose the GPUs with the lowest score of HAMi; whole ones as binpack does."""
    if not view.node(row).mode.shares_memory:
        return _hami_linked_cards(view, shape, row)
    cards = view.cards(row, shape.milli)
    return sorted(cards, key=lambda i: (_hami_card(view, row, i), i))[: shape.gpus]


def _hami_linked_cards(view: View, shape: Shape, row: int) -> list[int]:
    """Choose the set with the highest sum of pair scores; a single GPU with the lowest sum.

    `topology-aware` of HAMi, `pkg/device/nvidia/device.go`: all combinations of free GPUs are
    compared; the sum of a single one is to the other free ones. Of equal sets the first is taken.
    """
    weights = view.snapshot.tables[view.node(row).name].w
    cards = view.cards(row, MILLI)
    if shape.gpus == 1:
        # What stays free has the highest sum where this GPU has the lowest.
        everything = mask_of(cards)
        return [max(cards, key=lambda i: int(weights[everything & ~(1 << i)]))]
    best = max(combinations(cards, shape.gpus), key=lambda each: int(weights[mask_of(each)]))
    return list(best)


def _hami_card(view: View, row: int, i: int) -> float:
    # The amounts of the pod itself are the same on every GPU.
    used = 1 - int(view.free_milli[i, row]) / MILLI
    return 10 * (int(view.holders[i, row]) / _HAMI_SLOTS + 2 * used)


@dataclass(frozen=True, slots=True)
class LeastAllocated:
    """The default of kube-scheduler: the nodes with the most CPU and memory free, in percent.

    `NodeResourcesFit` with `LeastAllocated` counts CPU and memory, not GPUs; of equal nodes any one
    is taken (Kubernetes documentation, scheduler configuration).
    """

    draw: np.random.Generator

    def __call__(self, view: View, shape: Shape, rows: Rows) -> int:
        """Return one of the best rows."""
        capacity = _capacity(view)
        cpu = (view.cpu[rows] - shape.cpu) / capacity[0][rows]
        memory = (view.memory[rows] - shape.memory) / capacity[1][rows]
        score = ((cpu + memory) * 50).astype(np.int64)
        best = rows[score == score.max()]
        return int(best[self.draw.integers(len(best))])


def best_effort_cards(view: View, shape: Shape, row: int) -> list[int]:
    """Choose whole GPUs as NVIDIA's device plugin does, by pair scores of the best partition.

    `besteffort_policy.go` of NVIDIA/go-gpuallocator, as mode `compat` of Linkwise has it. Its
    plugin knows no shares, so that these take the lowest index.
    """
    node = view.snapshot.nodes[row]
    if node.node.mode.shares_memory:
        return lowest_indices(view, shape, row)
    table = view.snapshot.tables[node.node.name]
    request = ChoiceRequest(node.free_mask, shape.gpus, mode=ChoiceMode.COMPAT)
    chosen = choose(table, request)
    return list(gpus_of(chosen or 0))


@dataclass(frozen=True, slots=True)
class NativeGangs:
    """Gangs of kube-scheduler itself: all pods in one value of one node label.

    KEP-4671 and KEP-5732: a PodGroup has at most one topology key. The group is tried in each
    domain, pod by pod by the default scores. Of several domains that fit, the one with the least
    left afterwards is taken. Without a domain label all nodes are one domain.
    """

    draw: np.random.Generator

    def place(
        self, snapshot: Snapshot, shape: Shape, members: Sequence[Member]
    ) -> Sequence[Placement] | None:
        """Return the placement of each pod, or None where no domain fits all of them."""
        pods = PodByPod(LeastAllocated(self.draw), best_effort_cards)
        label = domain_label(snapshot)
        if len(members) == 1 or label is None:
            return pods.place(snapshot, shape, members)
        view = view_of(snapshot)
        capacity, values = view.capacity(shape, _MOST), labels(snapshot, label)
        totals = np.bincount(values, weights=capacity)
        fitting = [value for value in np.flatnonzero(totals >= len(members)).tolist() if value]
        for value in sorted(fitting, key=lambda value: (totals[value], value)):
            others = np.flatnonzero(values != value).tolist()
            outside = {snapshot.nodes[row].node.name for row in others}
            placements = pods.place(snapshot.without(outside), shape, members)
            if placements is not None:
                return placements
        return None


class TopologyAwareScheduling:
    """Kueue's: the lowest level with a domain that fits all pods, then the fewest nodes.

    Kueue documentation, Topology Aware Scheduling, and `tas_flavor_snapshot.go` (BestFit): of the
    domains of a level that fit, the one with the least capacity; below it the largest domains
    first, and for the last pods the smallest one that fits them. GPUs are NVIDIA's plugin's choice.
    """

    def place(
        self, snapshot: Snapshot, shape: Shape, members: Sequence[Member]
    ) -> Sequence[Placement] | None:
        """Return the placement of each pod, or None where not all of them fit."""
        view = view_of(snapshot)
        capacity = view.capacity(shape, _MOST)
        rows = self._domain(snapshot, capacity, len(members))
        if rows is None:
            return None
        rest, placements = list(members), list[Placement]()
        while rest:
            row = _best_fit_row(capacity, rows, len(rest))
            here, rest = rest[: int(capacity[row])], rest[int(capacity[row]) :]
            rows = rows[rows != row]
            for member in here:
                cards = best_effort_cards(view_of(snapshot), shape, row)
                placement = placed(view, shape, member, row, cards)
                placements.append(placement)
                snapshot = snapshot.hold_all([(placement.node, placement.holding)])
        return placements

    def _domain(self, snapshot: Snapshot, capacity: Ints, pods: int) -> Rows | None:
        """Return the nodes of the domain, or None where no domain fits all pods."""
        alone = np.flatnonzero(capacity >= pods)
        if len(alone):
            return alone
        for label in snapshot.preferences.domains:
            values = labels(snapshot, label)
            totals = np.bincount(values, weights=capacity)
            fitting = [value for value in np.flatnonzero(totals >= pods).tolist() if value]
            if fitting:
                domain = min(fitting, key=lambda value: (totals[value], value))
                return np.flatnonzero((values == domain) & (capacity > 0))
        return np.flatnonzero(capacity) if capacity.sum() >= pods else None


def _best_fit_row(capacity: Ints, rows: Rows, pods: int) -> int:
    """Return the node with the least capacity that takes all pods, else the one with the most."""
    here = capacity[rows]
    enough = rows[here >= pods]
    if len(enough):
        return int(enough[np.argmin(capacity[enough])])
    return int(rows[np.argmax(here)])


def _capacity(view: View) -> Ints:
    """Return CPU and memory of each node, at least 1, shape (2, nodes)."""

    def compute(node: NodeLedger) -> Value:
        return (max(1, node.node.cpu), max(1, node.node.memory))

    cache, nodes = view.snapshot.cache, view.snapshot.nodes
    return cache.get_or_compute("replay capacity", nodes, compute, np.int64)
