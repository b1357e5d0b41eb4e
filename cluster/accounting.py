"""The ledger as the pods themselves tell it: read anew at every start, never from a file."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from cluster.demand import demand_of
from cluster.foreign import read_foreign
from cluster.gang import gang_mark, is_member
from cluster.keys import ALLOCATION
from cluster.ledger import Conflict, Holding, Ledger, LedgerError, NodeLedger
from cluster.mode import Mode
from cluster.node import Node
from cluster.pod import Pod
from cluster.record import GPUShare, RecordError, parse_record
from cluster.request import Family, Request, read_request

_FINISHED = {"Succeeded", "Failed"}


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
    ledgers = {node.name: NodeLedger.empty(node) for node in nodes}
    conflicts: list[Conflict] = []
    claimants = [_read_claimant(pod) for pod in pods if pod.status.phase not in _FINISHED]
    claimants.sort(key=lambda one: (not one.pod.spec.node_name, one.age, one.name, one.uid))
    for one in claimants:
        if one.pod.spec.node_name in ledgers:
            name = one.pod.spec.node_name
            ledgers[name] = _account(ledgers[name], one, migrate=migrate)
        elif not one.pod.spec.node_name and one.request.places:
            conflicts += _reserve(ledgers, one)
    return Ledger(ledgers, tuple(conflicts))


@dataclass(frozen=True, slots=True)
class _Claimant:
    """A pod that may hold something."""

    pod: Pod
    request: Request

    @property
    def name(self) -> str:
        return f"{self.pod.metadata.namespace or 'default'}/{self.pod.metadata.name}"

    @property
    def uid(self) -> str:
        return self.pod.metadata.uid or self.name

    @property
    def age(self) -> str:
        return self.pod.metadata.creation_timestamp or ""

    def holding(self, shares: tuple[GPUShare, ...]) -> Holding:
        demand = demand_of(self.pod)
        mark, _ = gang_mark(self.pod)
        gang = mark.name if mark and is_member(self.pod, self.request, mark) else None
        return Holding(
            self.name,
            self.uid,
            shares,
            demand.cpu,
            demand.memory,
            demand.ports,
            gang=f"{self.name.partition('/')[0]}/{gang}" if gang else None,
            nvidia=self.request.gpus if self.request.family is Family.NVIDIA else 0,
        )


def _read_claimant(pod: Pod) -> _Claimant:
    return _Claimant(pod, read_request(pod)[0])


def _account(ledger: NodeLedger, one: _Claimant, *, migrate: bool) -> NodeLedger:
    """Return a node's ledger with a pod that is bound there."""
    try:
        shares = _shares(ledger.node, one, migrate=migrate) if one.request.places else ()
        return ledger.hold(one.holding(shares))
    except (RecordError, LedgerError) as error:
        # What it takes besides GPUs is known all the same.
        known = ledger if one.uid in ledger.holdings else ledger.hold(one.holding(()))
        return replace(known, unaccounted=ledger.unaccounted or f"{one.name}: {error}")


def _shares(node: Node, one: _Claimant, *, migrate: bool) -> tuple[GPUShare, ...]:
    if not _offers(node.mode, one.request.family):
        raise LedgerError(f"it runs on a node whose mode, {node.mode}, does not offer what it has")
    record = parse_record(one.pod.annotations)
    if record is None:
        shares = read_foreign(one.pod.annotations) if migrate else ()
        if not shares:
            raise RecordError(f"it has GPUs of this node, but no {ALLOCATION}")
        return shares
    if record.node != node.name:
        raise RecordError(f"{ALLOCATION} names node {record.node}, but it runs on {node.name}")
    return record.gpus


def _reserve(ledgers: dict[str, NodeLedger], one: _Claimant) -> list[Conflict]:
    """Hold what a pod that is not bound yet was given; return why that cannot be, if so."""
    node: str | None = None
    try:
        record = parse_record(one.pod.annotations)
        if record is None:
            return []
        node = record.node
        if node in ledgers:
            shares = _shares(ledgers[node].node, one, migrate=False)
            ledgers[node] = ledgers[node].hold(one.holding(shares))
            return []
        problem = f"there is no node {node}"
    except (RecordError, LedgerError) as error:
        problem = str(error)
    return [Conflict(one.name, one.uid, node, problem)]


def _offers(mode: Mode, family: Family | None) -> bool:
    if family is Family.SHARE:
        return mode.shares_memory
    return mode is (Mode.TOPOLOGY if family is Family.WHOLE else Mode.TIMESLICE)
