"""Which GPUs a pod gets of the node that a scheduler chose for it."""

from cluster.ledger import NodeLedger
from cluster.record import GPUShare
from cluster.request import Family, Request
from scorer.extender.filter import filter_node
from scorer.placement.reasons import Reason
from scorer.placement.shares import cards_for
from topology.choice import Ask, Mode, choose
from topology.machine import gpus_of
from topology.table import Table


def choose_gpus(
    node: NodeLedger, table: Table | None, request: Request, mode: Mode
) -> tuple[GPUShare, ...] | Reason:
    """Return what a pod gets, or why it gets nothing.

    Args:
        node: Who has what there.
        table: What links its GPUs.
        request: What the pod asks for.
        mode: What a choice of whole GPUs prefers.
    """
    obstacle = filter_node(node, request)
    if obstacle is not None:
        return obstacle.reason
    if request.family is not Family.WHOLE:
        return cards_for(node, request)
    ask = Ask(node.free_mask, request.gpus, mode=mode)
    mask = choose(table, ask) if table else None
    if mask is None:
        return Reason.GPUS
    return tuple(GPUShare(i, node.node.cards[i].uuid) for i in gpus_of(mask))
