"""Score feasible nodes for one pod from 0 to 10, in the range of the extender protocol."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeAlias, TypeVar

from linkwise.cluster.account.node_ledger import NodeLedger
from linkwise.cluster.mode import PackingStrategy
from linkwise.cluster.requests.request import Family, Request
from linkwise.planning.placement.assignment.node_assignment import SelectionOptions, select_gpus
from linkwise.planning.placement.assignment.single_node import TOLERANCE
from linkwise.planning.placement.filtering.filters import gpu_capacity
from linkwise.planning.placement.filtering.shares import preference
from linkwise.topology.choice import ChoiceMode
from linkwise.topology.per_table import per_table
from linkwise.topology.table import Table

HIGHEST = 10
"""`MaxExtenderPriority` of the scheduler's extender protocol."""
FAST = 8
"""Lowest score of the nodes that are as fast as the best; they differ by what they leave free."""


class Offer(NamedTuple):
    """What the score of a selection of whole GPUs depends on. Many selections are equal in it."""

    bandwidth: float
    """A of the selected GPUs [GB/s]."""
    free_after: int
    """Number of GPUs that stay free."""
    damage: float
    """Loss of 0.25·(V_2 + V_4) of the free GPUs [GB/s]."""


NodeValue: TypeAlias = Offer | tuple[float, ...]
"""The value of a node for a pod: an offer of whole GPUs, else a key; the least key is best."""
Item = TypeVar("Item", Offer, tuple[float, ...])


def node_value(
    node: NodeLedger,
    table: Table | None,
    request: Request,
    mode: ChoiceMode,
    placement: PackingStrategy,
) -> NodeValue | None:
    """Return the value of a node for a pod, to compare nodes; None where the pod does not fit."""
    if request.family is Family.WHOLE:
        return _offer(table, node.free_mask, request.gpus, mode) if table else None
    if not isinstance(gpu_capacity(node, request), int):
        return None
    return preference(node, request, placement)


def scores(values: Sequence[NodeValue | None], placement: PackingStrategy) -> list[int]:
    """Return the score of each node by its value for one pod; a node that does not fit gets 0.

    For whole GPUs a node within 1 % of the best A gets 8 to 10 by what it would leave (`binpack`:
    few free GPUs and little damage; `spread`: many), any other 0 to 7 by its share of the best A.
    For shares and replicas the order of `shares.preference` is spread over 0 to 10.

    Cost: 5 ms for 5 000 nodes, with `node_value` where few of them differ.
    """
    different = set(values)
    different.discard(None)
    offers = {value for value in different if isinstance(value, Offer)}
    others = {value for value in different if value is not None} - offers
    score: dict[NodeValue | None, int] = {None: 0}
    score.update(_scores(offers, placement).items())
    score.update(_spread_over(others, lambda key: key, 0).items())
    return list(map(score.__getitem__, values))


@per_table(1 << 16)
def _offer(table: Table, free: int, gpus: int, mode: ChoiceMode) -> Offer | None:
    """Return the offer of a machine to one pod; None where no selection fits."""
    selection = select_gpus(table, free, (gpus,), SelectionOptions(mode))
    return selection and Offer(selection.bandwidth, selection.free_after, selection.damage)


def _scores(offers: set[Offer], placement: PackingStrategy) -> dict[Offer, int]:
    best = max((offer.bandwidth for offer in offers), default=0.0)
    fast = {offer for offer in offers if offer.bandwidth >= best * (1 - TOLERANCE)}
    sign = 1 if placement is PackingStrategy.BINPACK else -1
    slow = {offer: int((FAST - 1) * offer.bandwidth / best) for offer in offers - fast}
    return slow | _spread_over(fast, lambda offer: (sign * offer.free_after, offer.damage), FAST)


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
