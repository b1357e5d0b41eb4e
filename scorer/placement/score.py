"""Score feasible nodes for one pod from 0 to 10, in the range of the extender protocol."""

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import TypeAlias, TypeVar

from cluster.node import PackingStrategy
from cluster.node_ledger import NodeLedger
from cluster.request import Family, Request
from scorer.placement.filters import gpu_capacity
from scorer.placement.node_assignment import Selection, SelectionOptions, select_gpus
from scorer.placement.shares import preference
from scorer.placement.single_node import TOLERANCE
from topology.choice import ChoiceMode
from topology.table import Table

# In Python 3.11 a member of an enum takes ten times as long to look up as a name.
_WHOLE = Family.WHOLE

HIGHEST = 10
"""`MaxExtenderPriority` of the scheduler's extender protocol."""
FAST = 8
"""Lowest score of the nodes that are as fast as the best; they differ by what they leave free."""


Value: TypeAlias = Selection | tuple[float, ...]
"""The value of a node for a pod: a selection of whole GPUs, else a key; the least key is best."""
Item = TypeVar("Item", Selection, tuple[float, ...])


def value_of(
    node: NodeLedger,
    table: Table | None,
    request: Request,
    mode: ChoiceMode,
    placement: PackingStrategy,
) -> Value | None:
    """Return the value of a node for a pod, to compare nodes; None where the pod does not fit."""
    if request.family is _WHOLE:
        return _selection(table, node.free_mask, request.gpus, mode) if table else None
    if not isinstance(gpu_capacity(node, request), int):
        return None
    return preference(node, request, placement)


def scores(values: Sequence[Value | None], placement: PackingStrategy) -> list[int]:
    """Return the score of each node by its value for one pod; a node that does not fit gets 0.

    For whole GPUs a node within 1 % of the best A gets 8 to 10 by what it would leave (`binpack`:
    few free GPUs and little damage; `spread`: many), any other 0 to 7 by its share of the best A.
    For shares and replicas the order of `shares.preference` is spread over 0 to 10.

    Cost: 5 ms for 5 000 nodes, with `value_of` where few of them differ.
    """
    # Equal selections are mostly the same object, and an id has a faster hash than a tuple.
    different = dict(zip(map(id, values), values, strict=True))
    selections = {value for value in different.values() if isinstance(value, Selection)}
    others = {value for value in different.values() if value is not None} - selections
    score: dict[Value | None, int] = {None: 0}
    score.update(_scores(selections, placement).items())
    score.update(_spread_over(others, lambda key: key, 0).items())
    by_id = {key: score[value] for key, value in different.items()}
    return list(map(by_id.__getitem__, map(id, values)))


@lru_cache(maxsize=1 << 16)
def _selection(table: Table, free: int, gpus: int, mode: ChoiceMode) -> Selection | None:
    """Return what `select_gpus` selects for one pod; here, since its own cache is slower."""
    return select_gpus(table, free, (gpus,), SelectionOptions(mode))


def _scores(selections: set[Selection], placement: PackingStrategy) -> dict[Selection, int]:
    best = max((selection.bandwidth for selection in selections), default=0.0)
    fast = {found for found in selections if found.bandwidth >= best * (1 - TOLERANCE)}
    sign = 1 if placement is PackingStrategy.BINPACK else -1
    slow = {found: int((FAST - 1) * found.bandwidth / best) for found in selections - fast}
    return slow | _spread_over(fast, lambda found: (sign * found.left, found.damage), FAST)


def _spread_over(
    items: Iterable[Item], key: Callable[[Item], tuple[float, ...]], lowest: int
) -> dict[Item, int]:
    """Score items from 10 for the least key down to `lowest`; equal keys get equal scores.

    Only the least key gets 10, since a scheduler chooses at random among the best.
    """
    keys = {item: key(item) for item in items}
    position = {value: index for index, value in enumerate(sorted(set(keys.values())))}
    steps = max(len(position) - 1, 1)
    return {
        item: lowest + (HIGHEST - lowest) * (steps - position[value]) // steps
        for item, value in keys.items()
    }
