"""The ledger as the pods themselves tell it: read anew at every start, never from a file."""

from collections.abc import Iterable
from dataclasses import replace

from cluster.gpu_usage import LedgerError
from cluster.ledger import Conflict, Holding, Ledger, NodeLedger
from cluster.node import Node
from cluster.pod import Pod
from cluster.pod_usage import PodUsage, pod_usage
from cluster.record import RecordError


def ledger_of(nodes: Iterable[Node], pods: Iterable[Pod], *, migrate: bool = False) -> Ledger:
    """Return who has what, from the nodes and all pods of the cluster.

    A pod counts where it is bound, or where its record says that it will be; finished ones hold
    nothing. Where a bound pod's GPUs cannot be told, its node becomes `unaccounted`; a pod that is
    not bound and whose record cannot be honoured is a conflict. Does not depend on the order of the
    pods.

    Args:
        nodes: All nodes.
        pods: All pods.
        migrate: Believe what another scheduler wrote on pods that have no record of ours.
    """
    known = {node.name: node for node in nodes}
    claimants: dict[str, list[PodUsage]] = {}
    for claimant in filter(None, map(pod_usage, pods)):
        claimants.setdefault(claimant.target, []).append(claimant)
    ledgers: dict[str, NodeLedger] = {}
    conflicts: list[Conflict] = []
    for name, node in known.items():
        ledgers[name], refused = account(node, claimants.pop(name, ()), migrate=migrate)
        conflicts += refused
    for rest in claimants.values():
        conflicts += filter(None, map(unresolved_conflict, rest))
    return Ledger(ledgers, tuple(sorted(conflicts, key=lambda one: one.pod)))


def account(
    node: Node, claimants: Iterable[PodUsage], *, migrate: bool = False
) -> tuple[NodeLedger, tuple[Conflict, ...]]:
    """Return who has what of one node, and the pods whose records cannot be honoured there.

    Args:
        node: The node.
        claimants: Those whose `target` it is.
        migrate: As in `ledger_of`.
    """
    ledger = NodeLedger.empty(node)
    conflicts: list[Conflict] = []
    others: list[Holding] = []
    """What pods take besides GPUs. Anybody can name a node, so that there may be thousands."""
    uids: set[str] = set()
    unaccounted = None
    for one in sorted(claimants, key=lambda one: one.order):
        if one.uid in uids:
            unaccounted = unaccounted or f"{one.name}: {one.name} is on {node.name} already"
            continue
        uids.add(one.uid)
        try:
            if shares := one.shares_on(node, migrate=migrate):
                ledger = ledger.hold(one.holding(shares))
            else:
                others.append(one.holding(()))
        except (RecordError, LedgerError) as error:
            if not one.node:
                conflicts.append(Conflict(one.name, one.uid, node.name, str(error)))
                continue
            # What it takes besides GPUs is known all the same.
            others.append(one.holding(()))
            unaccounted = unaccounted or f"{one.name}: {error}"
    return replace(ledger.hold_others(others), unaccounted=unaccounted), tuple(conflicts)


def unresolved_conflict(one: PodUsage) -> Conflict | None:
    """Return why an unbound pod has no node to go to; None where it has no record, and may wait."""
    if one.node or one.record is None:
        return None
    if isinstance(one.record, str):
        return Conflict(one.name, one.uid, None, one.record)
    node = one.record.node
    return Conflict(one.name, one.uid, node, f"there is no node {node}")
