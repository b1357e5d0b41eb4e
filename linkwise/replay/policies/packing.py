"""The baselines of GPU sharing: nodes by free amounts, without regard to links.

Best fit, dot product, packing and clustering follow the scores that Q. Weng et al. compare with
theirs (Beware of Fragmentation, USENIX ATC 2023, section 6.1; `pkg/simulator/plugin` of
`hkust-adsl/kubernetes-scheduler-simulator`). Scores are not rounded to whole numbers here, and of
equal nodes the first by name is taken.
"""

import numpy as np

from linkwise.cluster.account.node_ledger import NodeLedger
from linkwise.planning.placement.state.node_cache import Value
from linkwise.replay.job import MILLI, Shape
from linkwise.replay.policies.policy import ChooseCards, ChooseNode, Rows
from linkwise.replay.policies.view import Floats, Ints, View


def random_node(draw: np.random.Generator) -> ChooseNode:
    """Return the choice of any node that fits, each as likely."""
    return lambda _view, _shape, rows: int(rows[draw.integers(len(rows))])


def random_cards(draw: np.random.Generator) -> ChooseCards:
    """Return the choice of any GPUs that fit, each set as likely."""

    def choose(view: View, shape: Shape, row: int) -> list[int]:
        cards = view.cards(row, shape.milli)
        chosen: list[int] = draw.choice(cards, shape.gpus, replace=False).tolist()
        return chosen

    return choose


def round_robin() -> ChooseNode:
    """Return the choice of the first node that fits after the one chosen before."""
    last = -1

    def choose(_view: View, _shape: Shape, rows: Rows) -> int:
        nonlocal last
        later = rows[rows > last]
        last = int(later[0] if len(later) else rows[0])
        return last

    return choose


def best_fit(view: View, shape: Shape, rows: Rows) -> Floats:
    """Score nodes by how little CPU and GPU stays free, both weighing the same."""
    cpu_left = (view.cpu[rows] - shape.cpu) / view.most_cpu
    gpus_left = (view.total_free[rows] - shape.gpus * shape.milli) / view.most_gpu
    score: Floats = -(cpu_left + gpus_left) / 2
    return score


def worst_fit(view: View, shape: Shape, rows: Rows) -> Floats:
    """Score nodes by how much stays free: the opposite of best fit."""
    return -best_fit(view, shape, rows)


def dot_product(view: View, shape: Shape, rows: Rows) -> Floats:
    """Score nodes by the dot product of what is free and what is asked for, the smallest best.

    Both vectors are (CPU, GPU) as parts of the largest node. Tetris (R. Grandl et al.,
    SIGCOMM 2014) takes the largest product; this is the variant of the comparison above.
    """
    cpu, gpu = view.most_cpu, view.most_gpu
    asked = shape.cpu / cpu, shape.gpus * shape.milli / gpu
    product = view.cpu[rows] / cpu * asked[0] + view.total_free[rows] / gpu * asked[1]
    score: Floats = -product
    return score


def gpu_packing(view: View, shape: Shape, rows: Rows) -> Floats:
    """Score nodes by GPUs in use, then by free GPUs of nodes in use, then by idle nodes.

    100 minus a tenth of the free percent of the GPUs in use, at least 50; where free GPUs are
    needed, 50 minus their number, at least 33; on an idle node, 33 minus the number of its GPUs.
    """
    free = np.sort(
        np.where(view.free_milli[:, rows] >= shape.milli, view.free_milli[:, rows], MILLI + 1), 0
    )
    taken = free[: shape.gpus]
    fresh = (taken == MILLI).sum(axis=0)
    percent = taken.sum(axis=0) * 100 / MILLI
    is_idle = view.free_gpus[rows] == view.gpus[rows]
    in_use = np.where(fresh, np.maximum(50 - fresh, 33), np.maximum(100 - percent / 10, 50))
    score: Floats = np.where(is_idle, 33 - view.gpus[rows], in_use)
    return score


def gpu_clustering(view: View, shape: Shape, rows: Rows) -> Floats:
    """Score nodes by the kinds of pods there, so that pods of one kind share nodes.

    A kind is the number of GPUs of a pod; all shares are one kind. 75 where all pods are of this
    kind, 50 where some are, 25 on an idle node, else 0; plus up to 25 the less is free.
    """
    kinds, own = _kinds(view)[rows], _kind(shape.gpus, is_share=shape.is_share)
    base = np.select([kinds == own, (kinds & own) > 0, kinds == 0], [75, 50, 25], 0)
    score: Floats = base + 25 * (1 - view.total_free[rows] / view.most_gpu)
    return score


def _kinds(view: View) -> Ints:
    """Return the kinds of pods on each node, a bit for each."""

    def compute(node: NodeLedger) -> Value:
        kinds = 0
        for held in node.holdings.values():
            part = held.gpus.shares[0].mem
            kinds |= _kind(len(held.gpus), is_share=part is not None and part < MILLI)
        return (kinds,)

    cache, nodes = view.snapshot.cache, view.snapshot.nodes
    column: Ints = cache.get_or_compute("replay kinds", nodes, compute, np.int64)[0]
    return column


def _kind(gpus: int, *, is_share: bool) -> int:
    return 1 << (0 if is_share else gpus)
