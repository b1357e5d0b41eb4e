"""The free sets of GPUs, for `linkwise inspect --slots`: as text, and as a document."""

from collections.abc import Iterator

from linkwise.cluster.account.freeing_moves import FreedNode
from linkwise.cluster.account.slots import FreeDomains, FreeSets, PartlyFreeNode, SlotGroup
from linkwise.views.output.document import Document
from linkwise.views.output.printer import QUIET, Cell, Paint, cut, named, say, say_rest, table
from linkwise.views.output.words import plural


class Slots(Document, frozen=True, kw_only=True):
    """The free sets of whole GPUs, by pool and model."""

    groups: tuple[SlotGroup, ...]
    domains: tuple[FreeDomains, ...]


def show(slots: Slots) -> None:
    """Write the free sets of each group of nodes, and the free domains, to standard output."""
    if not slots.groups:
        say("no node offers whole GPUs")
    for group in slots.groups:
        _show_head(group)
        table(list(_rows(group)), indent=2)
        shown = cut(group.partly_free)
        table([_node(node, group) for node in shown], indent=2)
        say_rest(len(group.partly_free) - len(shown))
        freed = cut(group.freed)
        for node in freed:
            say(f"  {_freed(node)}")
        say_rest(len(group.freed) - len(freed))
        say()
    for each in slots.domains:
        domains, gpus = plural("domain", each.domains), plural("GPU", each.gpus)
        say(
            f"{each.free} of {each.domains} {domains} of {each.label} free, with {each.gpus} {gpus}"
        )


def _show_head(group: SlotGroup) -> None:
    closed = f"; {group.closed} take no pods now" if group.closed else ""
    free = f"{group.free} {plural('GPU', group.free)} free"
    say(
        Paint(f"pool {group.pool}" if group.pool else "no pool", bold=True),
        Paint(f"{_machine(group)};", QUIET),
        f"{group.nodes} {plural('node', group.nodes)}, {free}{closed}",
    )


def _machine(group: SlotGroup) -> str:
    number = group.gpus_per_node
    parts = [group.model or "unknown model", f"{number} {plural('GPU', number)} a node"]
    parts += ["links unknown"] if group.machine_class is None else []
    parts += ["chosen by NVIDIA's plugin"] if group.counted else []
    parts += ["by claims"] if group.claims else []
    return ", ".join(parts)


def _rows(group: SlotGroup) -> Iterator[list[Cell]]:
    yield ["SIZE", "FASTEST", "GB/S", "ANY", "IF TOGETHER"]
    for sets in group.sets:
        yield _row(sets, is_node=sets.size == group.gpus_per_node)


def _row(sets: FreeSets, *, is_node: bool) -> list[Cell]:
    return [
        f"{sets.size} {plural('GPU', sets.size)}{', a whole node' if is_node else ''}",
        "?" if sets.fastest is None else str(sets.fastest),
        "" if sets.bandwidth is None else f"{sets.bandwidth:.1f}",
        str(sets.total),
        str(sets.together),
    ]


def _freed(node: FreedNode) -> str:
    moves = [
        f"{each.unit} ({each.gpus} {plural('GPU', each.gpus)}) to {each.to}" for each in node.moves
    ]
    return f"{node.name} would be whole after moves of {named(moves)}"


def _node(node: PartlyFreeNode, group: SlotGroup) -> list[Cell]:
    taken = [f"{node.allocated} allocated"] if node.allocated else []
    why = "unhealthy, cordoned or held by claims" if group.claims else "unhealthy or cordoned"
    taken += [f"{node.unusable} {why}"] if node.unusable else []
    return [node.name, f"{node.free} free", ", ".join(taken), named(node.units)]
