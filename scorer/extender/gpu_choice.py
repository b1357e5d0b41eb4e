"""Choose the GPUs of a pod on the node that a scheduler chose."""

from linkwise.cluster.account.node_ledger import NodeLedger
from linkwise.cluster.allocations.gpus import Exact
from linkwise.cluster.requests.request import Family, Request
from linkwise.planning.placement.filtering.reasons import Reason
from linkwise.planning.placement.filtering.shares import cards_for, whole_gpus
from linkwise.topology.choice import ChoiceMode, ChoiceRequest, choose
from linkwise.topology.machine import gpus_of
from linkwise.topology.table import Table
from scorer.extender.filter import filter_gpus


def choose_gpus(
    node: NodeLedger, table: Table | None, request: Request, mode: ChoiceMode
) -> Exact | Reason:
    """Return the GPUs for a pod, or why there are none.

    Args:
        node: The free GPUs of the node.
        table: The links between them; None: unknown.
        request: The pod's.
        mode: The objective of a choice of whole GPUs.
    """
    infeasible = filter_gpus(node, request)
    if infeasible is not None:
        return infeasible.reason
    if request.family is not Family.WHOLE:
        return Exact(cards_for(node, request))
    choice = ChoiceRequest(node.free_mask, request.gpus, mode=mode)
    mask = choose(table, choice) if table else None
    if mask is None:
        return Reason.GPUS
    return whole_gpus(node.node, gpus_of(mask))
