"""Build the ledger from the pods: at every start, never from a file."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from linkwise.cluster.account.gpu_usage import LedgerError
from linkwise.cluster.account.ledger import Conflict, Ledger
from linkwise.cluster.account.node_ledger import Holding, NodeLedger
from linkwise.cluster.account.pod_usage import PodUsage, pod_usage
from linkwise.cluster.allocations.gpus import NO_GPUS, Unreadable
from linkwise.cluster.memo import Memo
from linkwise.cluster.nodes.device_claims import HeldClaim
from linkwise.cluster.nodes.node import Node
from linkwise.cluster.objects.pod import Pod


def ledger_of(
    nodes: Iterable[Node],
    pods: Iterable[Pod],
    *,
    claims: Iterable[HeldClaim] = (),
    migrate: bool = False,
) -> Ledger:
    """Return the ledger of all nodes, from the nodes and all pods of the cluster.

    A pod counts on the node to which it is bound, or which its record names; finished pods hold
    nothing. A node becomes `unaccounted` if the GPUs of a bound pod are unknown, if its agent
    reports a mismatch, or if several claims hold one GPU. An unbound pod whose record is invalid
    is a conflict, unless the GPUs of its node are only unknown for now. The result does not depend
    on the order of the pods.

    Args:
        nodes: All nodes.
        pods: All pods.
        claims: ResourceClaims that hold GPUs: those of pods of Linkwise say which GPUs they have.
        migrate: Accept records of other schedulers on pods without a record of ours.
    """
    usages = filter(None, map(pod_usage, pods))
    return Accounting().ledger(nodes, usages, claims=claims, migrate=migrate)


class Accounting:
    """Makes one ledger after the other; the account of an unchanged node is the same object."""

    def __init__(self) -> None:
        """Start without a ledger."""
        self._claimants = Memo(PodUsage.with_claims)
        self._accounts = Memo(_account)

    def ledger(
        self,
        nodes: Iterable[Node],
        usages: Iterable[PodUsage],
        *,
        claims: Iterable[HeldClaim],
        migrate: bool,
    ) -> Ledger:
        """Return the ledger of all nodes, as `ledger_of`.

        Args:
            nodes: All nodes.
            usages: Of all pods that have not finished.
            claims: As in `ledger_of`.
            migrate: As in `ledger_of`.
        """
        known = {node.name: node for node in nodes}
        claimants: dict[str, list[PodUsage]] = {}
        for usage in self._with_claims(usages, claims):
            claimants.setdefault(usage.target, []).append(usage)
        accounts = self._accounts.map(
            (node, tuple(claimants.pop(name, ())), migrate) for name, node in known.items()
        )
        conflicts = [one for _, refused in accounts for one in refused]
        for rest in claimants.values():
            conflicts += filter(None, map(unresolved_conflict, rest))
        ledgers = {name: ledger for name, (ledger, _) in zip(known, accounts, strict=True)}
        return Ledger(ledgers, tuple(sorted(conflicts, key=lambda one: one.pod)))

    def _with_claims(
        self, usages: Iterable[PodUsage], claims: Iterable[HeldClaim]
    ) -> Iterator[PodUsage]:
        by_name = {f"{claim.namespace}/{claim.name}": claim for claim in claims}
        calls: list[tuple[PodUsage, tuple[HeldClaim | None, ...]]] = []
        for usage in usages:
            namespace = usage.name.partition("/")[0] if usage.claims else ""
            held = tuple(by_name.get(f"{namespace}/{name}") for name in usage.claims)
            if any(held):
                calls.append((usage, held))
            else:
                yield usage
        yield from self._claimants.map(calls)


def _account(
    node: Node, claimants: tuple[PodUsage, ...], migrate: bool
) -> tuple[NodeLedger, tuple[Conflict, ...]]:
    return account(node, claimants, migrate=migrate)


def account(
    node: Node, claimants: Iterable[PodUsage], *, migrate: bool = False
) -> tuple[NodeLedger, tuple[Conflict, ...]]:
    """Return the ledger of one node, and the unbound pods whose records are invalid there.

    Args:
        node: The node.
        claimants: Pods whose `target` is the node.
        migrate: As in `ledger_of`.
    """
    ledger = NodeLedger.empty(node)
    conflicts: list[Conflict] = []
    others: list[Holding] = []
    """Pods without GPUs here. Any pod can name a node, so there may be thousands."""
    uids: set[str] = set()
    unaccounted, unknown = node.machine_refused, None
    if node.mismatch:
        unaccounted = node.mismatch if node.is_claims else f"its agent reports: {node.mismatch}"
    for one in sorted(claimants, key=lambda one: one.order):
        if one.uid in uids:
            unknown = unknown or one
            unaccounted = unaccounted or f"{one.name}: {one.name} is on {node.name} already"
            continue
        uids.add(one.uid)
        gpus = one.gpus_on(node, migrate=migrate)
        if not isinstance(gpus, Unreadable):
            if not gpus.shares:
                others.append(one.holding(gpus))
                continue
            try:
                ledger = ledger.hold(one.holding(gpus))
                continue
            except LedgerError as error:
                gpus = Unreadable(str(error))
        if not one.node and not (one.by_claim and node.awaits_slices):
            conflicts.append(Conflict(one.name, one.uid, node.name, gpus.reason))
            continue
        # Its CPU, memory and ports are known, and how many GPUs it requests.
        others.append(one.holding(one.nvidia or NO_GPUS))
        unknown = unknown or one
        unaccounted = unaccounted or f"{one.name}: {gpus.reason}"
    pod = (unknown.uid, unknown.name) if unknown else None
    ledger = ledger.hold_others(others)
    return replace(ledger, unaccounted=unaccounted, unaccounted_pod=pod), tuple(conflicts)


def account_changes(
    ledger: NodeLedger, changed: Mapping[str, PodUsage | None], *, migrate: bool = False
) -> NodeLedger | None:
    """Return the ledger of a node without conflicts, with changed usages.

    None: all usages must be accounted, in their order.

    Args:
        ledger: Of the node.
        changed: By uid of the pod; None: it has nothing there any more.
        migrate: As in `ledger_of`.
    """
    if ledger.unaccounted:
        return None
    for uid in changed:
        ledger = ledger.release(uid)
    try:
        for usage in filter(None, changed.values()):
            gpus = usage.gpus_on(ledger.node, migrate=migrate)
            if isinstance(gpus, Unreadable):
                return None
            ledger = ledger.hold(usage.holding(gpus))
    except LedgerError:
        return None
    return ledger


def unresolved_conflict(one: PodUsage) -> Conflict | None:
    """Return the conflict of an unbound pod whose node does not exist; None without a record."""
    if one.node or one.record is None:
        return None
    if isinstance(one.record, Unreadable):
        return Conflict(one.name, one.uid, None, one.record.reason)
    node = one.record.node
    return Conflict(one.name, one.uid, node, f"there is no node {node}")
