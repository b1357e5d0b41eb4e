"""The text of `linkwise inspect`."""

from collections.abc import Iterator, Sequence

from linkwise.cluster.allocations.record import Isolation
from linkwise.cluster.keys import NVIDIA_GPU, NVIDIA_GPU_SHARED
from linkwise.cluster.mode import NodeMode
from linkwise.cluster.nodes.node import MachineSource
from linkwise.cluster.requests.amounts import CORE_MAX
from linkwise.views.analysis.counted_sets import CountedSet
from linkwise.views.analysis.inspection import GPUHolder, InspectedNode
from linkwise.views.output.printer import (
    BAD,
    GOOD,
    QUIET,
    WARNING,
    Cell,
    Paint,
    cut,
    say,
    say_rest,
    sentence,
    table,
)
from linkwise.views.output.words import amount_text, card_problems, plural
from linkwise.views.render.topology_text import link_kind

_UNSAID = (MachineSource.AGENT, MachineSource.FILE, MachineSource.UNKNOWN)
"""Sources of links that go without saying: the node itself, the file, and none."""
MAX_NAMES = 4
"""The number of pods of one GPU that are named; -d names all."""


def show(views: Sequence[InspectedNode], *, detail: bool) -> None:
    """Write every node, and the totals, to standard output."""
    shown = cut(views)
    for view in shown:
        _show_head(view)
        if view.missing:
            say(" ", Paint("not offered", BAD, bold=True), view.missing)
        if view.ledger.unaccounted:
            say(" ", Paint("unaccounted", BAD, bold=True), view.ledger.unaccounted)
        if note := view.node.kubelet.numa_note:
            say("  note:", sentence(note))
        table(list(_gpu_rows(view) if detail else _rows(view)), indent=2)
        say()
    say_rest(len(views) - len(shown))
    say(_summary(views))


def _show_head(view: InspectedNode) -> None:
    node = view.node
    warnings = [
        *([Paint("not ready", BAD)] if not node.ready else []),
        *([Paint("unschedulable", BAD)] if node.unschedulable else []),
        *_enforced(view),
    ]
    say(
        Paint(node.name, bold=True),
        Paint(f"{node.mode}{' by claims' * node.is_claims}, {_links(view)};", QUIET),
        f"{_left(view)}{';' if warnings else ''}",
        *warnings,
    )


def _links(view: InspectedNode) -> str:
    machine = view.node.machine
    known = link_kind(machine) if machine and view.node.machine_known else "links unknown"
    source = view.node.machine_source
    known += "" if source in _UNSAID else f" {source.words}"
    return f"{view.node.model}, {known}" if view.node.model else known


def _left(view: InspectedNode) -> str:
    """Return what the node can still give out, in the unit of its mode."""
    ledger, mode, cards = view.ledger, view.node.mode, view.indices
    if ledger.unaccounted or view.missing:
        return f"{len(cards)} {plural('GPU', len(cards))}, none is offered"
    if mode.shares_memory:
        memory = f"{sum(map(ledger.memory_free, cards))} of {sum(map(view.total, cards))} GiB free"
        if not mode.shares_compute:
            return memory
        core = f"{sum(map(ledger.core_free, cards))} of {CORE_MAX * len(cards)} % compute"
        return f"{memory}, {core}"
    if mode is NodeMode.TIMESLICE:
        left = sum(map(ledger.replicas_free, cards))
        return f"{left} of {view.node.replicas * len(cards)} replicas free"
    return _left_by_count(view)


def _left_by_count(view: InspectedNode) -> str:
    ledger, cards = view.ledger, view.indices
    gpus = f"{len(cards)} {plural('GPU', len(cards))}"
    if ledger.replicas_counted:
        left = ledger.counted_free(NVIDIA_GPU_SHARED)
        replicas = f"{left} of {ledger.replicas_counted} replicas free"
        return f"{ledger.gpus_free} of {gpus}, {replicas}" if cards else replicas
    parts = view.node.parts
    if parts is None:
        return f"{ledger.gpus_free} of {gpus} free"
    return f"{ledger.counted_free(NVIDIA_GPU)} of {parts.words} free"


def _enforced(view: InspectedNode) -> Iterator[Paint]:
    """Yield the mechanisms that enforce the shares of a GPU."""
    if not view.enforced:
        return
    if view.enforced == {Isolation.NONE}:
        yield Paint("nothing enforces the limits", WARNING)
    else:
        mechanisms = ", ".join(sorted(view.enforced - {Isolation.NONE}))
        warning = " of some pods only" if Isolation.NONE in view.enforced else ""
        yield Paint(f"limits enforced by {mechanisms}{warning}", WARNING if warning else GOOD)


def _rows(view: InspectedNode) -> Iterator[list[Cell]]:
    """Yield a row for each group of GPUs: those of one holder, of one gang, free ones."""
    if view.node.mode is NodeMode.DEFAULT:
        yield from _counted(view)
        return
    for gpus in _groups(view):
        speed = view.bandwidth(gpus)
        yield [
            " ".join(map(str, gpus)),
            _state(view, gpus[0]),
            f"{speed:.1f} GB/s" if speed is not None and _is_whole(view, gpus[0]) else "",
            _holder_names(view, gpus),
        ]


def _counted(view: InspectedNode) -> Iterator[list[Cell]]:
    """Yield the number of GPUs of each pod or gang, where NVIDIA's plugin chooses which."""
    for each in view.counted_sets:
        noun = "replica" if each.resource == NVIDIA_GPU_SHARED else "GPU"
        noun = view.node.parts.kind if view.node.parts else noun
        yield [
            f"{each.count} {plural(noun, each.count)}",
            "all GPUs" if each.is_whole else "chosen by NVIDIA's plugin",
            _counted_bandwidth(each),
            _counted_holders(view, each),
        ]


def _counted_bandwidth(counted: CountedSet) -> str:
    if counted.is_unknown:
        return "bandwidth not known"
    return f"{counted.bandwidth:.1f} GB/s" if counted.bandwidth is not None else ""


def _counted_holders(view: InspectedNode, counted: CountedSet) -> str:
    uids = {holding.uid for holding in counted.holdings}
    holders = [holder for holder in view.holders if holder.holding.uid in uids]
    if counted.gang:
        return _gang(counted.gang, holders)
    return f"{holders[0].holding.pod}{'' if holders[0].bound else ' (not bound yet)'}"


def _groups(view: InspectedNode) -> list[tuple[int, ...]]:
    """Return GPUs in groups of equal state and, for whole GPUs, equal unit."""
    groups: dict[object, list[int]] = {}
    for i in view.indices:
        groups.setdefault(_unit(view, i), []).append(i)
    return [tuple(group) for group in groups.values()]


def _unit(view: InspectedNode, i: int) -> object:
    card, taken = view.node.cards[i], view.ledger.taken[i]
    if not taken.holders:
        return card.healthy, card.cordoned, card.claimed, view.total(i)
    if not taken.whole:
        return i
    holding = view.holders_of(i)[0].holding
    return card.healthy, card.cordoned, holding.gang or holding.pod


def _is_whole(view: InspectedNode, i: int) -> bool:
    """Return whether a GPU is held by one pod alone, or is free."""
    taken = view.ledger.taken[i]
    return taken.whole or (not taken.holders and view.node.cards[i].usable)


def _state(view: InspectedNode, i: int) -> Cell:
    card, taken = view.node.cards[i], view.ledger.taken[i]
    if view.is_counted and card.usable:
        return "by count"
    problems = card_problems(card, is_held=bool(taken.holders))
    if not taken.holders and problems:
        return Paint(", ".join(problems), BAD)
    state = _taken(view, i) if taken.holders else "free"
    if not taken.holders:
        return Paint(state, GOOD) if not view.ledger.unaccounted else "unknown"
    return Paint(", ".join([state, *problems]), BAD) if problems else state


def _taken(view: InspectedNode, i: int) -> str:
    taken = view.ledger.taken[i]
    if taken.whole:
        return "whole"
    if view.node.replicas:
        return f"{taken.holders} of {view.node.replicas} replicas"
    core = f", {taken.core} of {CORE_MAX} %" if view.node.mode.shares_compute else ""
    return f"{taken.memory} of {view.total(i)} GiB{core}"


def _holder_names(view: InspectedNode, gpus: tuple[int, ...]) -> str:
    holders = list(dict.fromkeys(holder for i in gpus for holder in view.holders_of(i)))
    if not holders:
        return ""
    gang = holders[0].holding.gang
    if view.ledger.taken[gpus[0]].whole and gang:
        return _gang(gang, holders)
    names = [f"{pod.holding.pod}{_amount(pod, gpus[0])}" for pod in holders[:MAX_NAMES]]
    more = len(holders) - MAX_NAMES
    return ", ".join(names) + (f" and {more} more" if more > 0 else "")


def _gang(gang: str, holders: list[GPUHolder]) -> str:
    number = len(holders)
    return f"gang {gang} ({number} {plural('pod', number)}{_unbound(holders)})"


def _unbound(holders: list[GPUHolder]) -> str:
    number = sum(not holder.bound for holder in holders)
    return f", {number} not bound yet" if number else ""


def _amount(holder: GPUHolder, i: int) -> str:
    shares = holder.shares_of(i)
    details = [amount] if (amount := amount_text(shares)) else []
    if len(shares) > 1:
        details.append(f"{len(shares)} replicas")
    if not holder.bound:
        details.append("not bound yet")
    return f" ({', '.join(details)})" if details else ""


def _gpu_rows(view: InspectedNode) -> Iterator[list[Cell]]:
    """Yield the details of each GPU, and a line for each pod that holds some of it."""
    yield ["GPU", "STATE", "NVLINKS", "UUID", "POD", "GANG", "ISOLATION"]
    for i in view.indices:
        card, holders = view.node.cards[i], view.holders_of(i)
        own: list[Cell] = [str(i), _state(view, i), _nvlinks(view, i), card.uuid or "-"]
        for holder in holders or [None]:
            yield [*own, *(_pod(holder, i) if holder else [])]
            own = [""] * len(own)
    for each in view.counted_sets:
        speed = _counted_bandwidth(each)
        for held in each.holdings:
            yield [f"{len(held.gpus)} by count", speed, "", "", held.pod, held.gang or "-"]
            speed = ""


def _pod(holder: GPUHolder, i: int) -> list[Cell]:
    named = f"{holder.holding.pod}{_amount(holder, i)}"
    return [named, holder.holding.gang or "-", holder.isolation or "-"]


def _nvlinks(view: InspectedNode, i: int) -> str:
    machine = view.node.machine
    if machine is None or not view.node.machine_known:
        return "?"
    if machine.switched:
        return f"{max(machine.links[i])} to the switch" if any(machine.links[i]) else "-"
    linked = ((j, count) for j, count in enumerate(machine.links[i]) if count)
    return " ".join(f"{j}×{count}" for j, count in linked) or "-"


def _summary(views: Sequence[InspectedNode]) -> str:
    gpus = sum(len(view.indices) for view in views)
    free = sum(view.ledger.gpus_free for view in views)
    nodes = f"{len(views)} {plural('node', len(views))}"
    if not views:
        return "no node with GPUs"
    divided = [view.ledger for view in views if view.node.parts]
    shared = [view.ledger for view in views if view.ledger.replicas_counted]
    totals = [f"{gpus} {plural('GPU', gpus)}, {free} free"] if gpus or not shared else []
    if shared:
        replicas = sum(ledger.replicas_counted for ledger in shared)
        left = sum(ledger.counted_free(NVIDIA_GPU_SHARED) for ledger in shared)
        totals.append(f"{replicas} replicas of NVIDIA's plugin, {left} free")
    if divided:
        parts = sum(ledger.node.parts.count for ledger in divided if ledger.node.parts)
        left = sum(ledger.counted_free(NVIDIA_GPU) for ledger in divided)
        totals.append(f"{parts} parts of GPUs offered as whole ones, {left} free")
    return f"{nodes} with {'; '.join(totals)}"
