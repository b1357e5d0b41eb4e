"""Count the free sets of whole GPUs by size, and find the nodes that pods keep from being whole.

Only GPUs count. CPU, memory and taints matter for a certain pod, and so does its network.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from linkwise.cluster.account.freeing_moves import FreedNode, freed_nodes
from linkwise.cluster.account.node_ledger import NodeLedger
from linkwise.cluster.mode import NodeMode
from linkwise.cluster.nodes.node import Node
from linkwise.cluster.nodes.node_reader import uniform_machine
from linkwise.topology.subsets import sets_of
from linkwise.topology.table import Table, table_of

SIZES = (8, 4, 2, 1)
"""Numbers of GPUs that jobs usually have on a node."""

_Member: TypeAlias = tuple[NodeLedger, Table]


class _Kind(NamedTuple):
    """What the nodes of a group have in common: the first fields of `SlotGroup`."""

    pool: str | None
    model: str | None
    machine_class: str | None
    gpus_per_node: int
    counted: bool
    claims: bool


@dataclass(frozen=True, slots=True)
class FreeSets:
    """The disjoint sets of one size that free GPUs make; each is on one node."""

    size: int
    bandwidth: float | None
    """The best bandwidth of a set of this size [GB/s]; null: not known, or one GPU."""
    fastest: int | None
    """Number of sets with this bandwidth; null: not known, since links are unknown or NVIDIA's
    plugin chooses."""
    total: int
    """Number of sets of any bandwidth."""
    together: int
    """Number of sets that as many GPUs would make if they were on as few nodes as possible."""


@dataclass(frozen=True, slots=True)
class PartlyFreeNode:
    """A node with free GPUs that is not free as a whole."""

    name: str
    free: int
    allocated: int
    """GPUs of pods."""
    unusable: int
    """Unhealthy and cordoned GPUs without pods, and those that claims of others hold."""
    units: tuple[str, ...]
    """`namespace/name` of the gangs, and of the pods without a gang, that have GPUs here."""


@dataclass(frozen=True, slots=True)
class SlotGroup:
    """The free sets of nodes that are alike, so that their sets can be added."""

    pool: str | None
    model: str | None
    """Product name of the GPUs."""
    machine_class: str | None
    """Shared by machines with equal links; null where the links are not known."""
    gpus_per_node: int
    counted: bool
    """NVIDIA's plugin chooses the GPUs of pods."""
    claims: bool
    """Pods get their GPUs by claims."""
    nodes: int
    closed: int
    """Nodes that take no pods now: not ready, unschedulable, with unknown allocations, or
    without slices of their driver."""
    free: int
    """Free GPUs of the other nodes."""
    sets: tuple[FreeSets, ...]
    """By size, the largest first: all GPUs of a node, 8, 4, 2, 1."""
    partly_free: tuple[PartlyFreeNode, ...]
    """The nodes with the most free GPUs come first."""
    freed: tuple[FreedNode, ...]
    """The nodes that moves would make whole, those that need the fewest moved GPUs first."""


@dataclass(frozen=True, slots=True)
class FreeDomains:
    """The network domains of one kind of which all GPUs are free."""

    label: str
    """The label of nodes that names their domain."""
    domains: int
    """Number of domains that have nodes with whole GPUs."""
    free: int
    """Number of those of which all nodes are whole and take pods."""
    gpus: int
    """The GPUs of these."""


def free_domains(ledgers: Iterable[NodeLedger], labels: Sequence[str]) -> tuple[FreeDomains, ...]:
    """Return the free domains of each label that some node has.

    Args:
        ledgers: Nodes; those without whole GPUs are left out.
        labels: Of the policy, the nearest domains first.
    """
    offering = [ledger for ledger in ledgers if has_slots(ledger)]
    found: list[FreeDomains] = []
    for label in labels:
        gpus: dict[str, int] = {}
        taken: set[str] = set()
        for ledger in offering:
            if domain := ledger.node.labels.get(label):
                gpus[domain] = gpus.get(domain, 0) + len(ledger.node.cards)
                if not takes_pods(ledger) or ledger.gpus_free < len(ledger.node.cards):
                    taken.add(domain)
        free = gpus.keys() - taken
        if gpus:
            total = sum(gpus[domain] for domain in free)
            found.append(FreeDomains(label, len(gpus), len(free), total))
    return tuple(found)


def free_slots(ledgers: Iterable[NodeLedger]) -> tuple[SlotGroup, ...]:
    """Return the free sets of the nodes that offer whole GPUs, in groups of equal nodes.

    Cost: 0.1 ms for each node; at first 0.3 s for each class of machines with 16 GPUs.
    """
    groups: dict[_Kind, list[_Member]] = {}
    for ledger in ledgers:
        if has_slots(ledger):
            kind, table = _kind(ledger.node)
            groups.setdefault(kind, []).append((ledger, table))
    order = sorted(groups, key=lambda kind: (kind.pool or "", kind.model or "", str(kind)))
    return tuple(_group(kind, groups[kind]) for kind in order)


def _kind(node: Node) -> tuple[_Kind, Table]:
    """Return the kind of a node, and the table of its machine."""
    machine = node.machine
    # The scorer refuses machines where there are too many: their tables would take minutes.
    is_known = node.machine_known and not node.machine_refused
    if machine is None or not is_known:
        machine = uniform_machine(len(node.cards))
    table = table_of(machine)
    known = table.key if is_known else None
    kind = _Kind(
        node.node_pool, node.model, known, table.n, counted=node.is_counted, claims=node.is_claims
    )
    return kind, table


def _group(kind: _Kind, members: list[_Member]) -> SlotGroup:
    usable = [member for member in members if takes_pods(member[0])]
    sizes = sorted({*SIZES, kind.gpus_per_node}, reverse=True)
    partly_free = [
        _partly_free(ledger) for ledger, _ in usable if 0 < ledger.gpus_free < kind.gpus_per_node
    ]
    return SlotGroup(
        *kind,
        nodes=len(members),
        closed=len(members) - len(usable),
        free=sum(ledger.gpus_free for ledger, _ in usable),
        sets=tuple(
            _free_sets(kind, size, members[0][1], usable)
            for size in sizes
            if size <= kind.gpus_per_node
        ),
        partly_free=tuple(
            sorted(partly_free, key=lambda node: (-node.free, node.allocated, node.name))
        ),
        freed=freed_nodes([ledger for ledger, _ in usable], kind.gpus_per_node),
    )


def has_slots(ledger: NodeLedger) -> bool:
    """Return whether a node offers whole GPUs."""
    node = ledger.node
    has_whole = node.mode is NodeMode.TOPOLOGY or (node.is_counted and node.parts is None)
    return bool(node.cards) and has_whole


def takes_pods(ledger: NodeLedger) -> bool:
    """Return whether a node takes new pods now, as far as GPUs matter."""
    node = ledger.node
    is_missing = node.pool and node.pool.missing
    is_open = node.ready and not node.unschedulable and not ledger.unaccounted and not is_missing
    # Linkwise needs tables of a machine to choose GPUs, NVIDIA's plugin does not.
    has_tables = not (node.preparing or node.machine_refused)
    return is_open and (has_tables or ledger.is_counted)


def _free_sets(kind: _Kind, size: int, table: Table, usable: list[_Member]) -> FreeSets:
    free = [ledger.gpus_free for ledger, _ in usable]
    total = sum(number // size for number in free)
    nodes, rest = divmod(sum(free), table.n)
    fastest = None
    if size in {1, table.n} or (kind.machine_class and _is_uniform(table, size)):
        fastest = total
    elif kind.machine_class and not kind.counted:
        fastest = sum(int(own.fastest(size)[ledger.free_mask]) for ledger, own in usable)
    return FreeSets(
        size=size,
        bandwidth=round(table.best_possible(size), 1) if kind.machine_class and size > 1 else None,
        fastest=fastest,
        total=total,
        together=nodes * (table.n // size) + rest // size,
    )


def _is_uniform(table: Table, size: int) -> bool:
    """Return whether all sets of a size are equally fast, so that the choice does not matter."""
    return len({table.rounded[mask] for mask in sets_of(table.n, size).tolist()}) == 1


def _partly_free(ledger: NodeLedger) -> PartlyFreeNode:
    unusable = sum(
        not card.usable and not taken.holders
        for card, taken in zip(ledger.node.cards, ledger.taken, strict=True)
    )
    free = ledger.gpus_free
    units = {held.gang or held.pod for held in ledger.holdings.values() if held.gpus}
    allocated = len(ledger.node.cards) - free - unusable
    return PartlyFreeNode(ledger.node.name, free, allocated, unusable, tuple(sorted(units)))
