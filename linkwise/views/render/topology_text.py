"""The text of `linkwise topology`."""

from linkwise.cluster.nodes.machine_record import level_word
from linkwise.topology.catalogue import Entry
from linkwise.topology.choice import ChoiceRequest
from linkwise.topology.explain import Explanation, GPUSet
from linkwise.topology.machine import Machine
from linkwise.topology.table import Table
from linkwise.views.output.printer import BAD, GOOD, QUIET, WARNING, Cell, Paint, say, table
from linkwise.views.output.words import plural
from linkwise.views.render.topology_json import links, pairs

UNIT = "GB/s"
_HINT = (
    "NV2: two NVLinks; PIX, PXB: PCIe switches; PHB, NODE: one socket's host bridges; "
    "SYS: between sockets"
)


def show_machine(name: str, machine: Machine, bandwidths: Table) -> None:
    """Write a machine's links and bandwidths."""
    gpus = f"{machine.n} {plural('GPU', machine.n)}"
    say(Paint(name, bold=True), f"{gpus}, {link_kind(machine)}, class {bandwidths.key}")
    say()
    say(f"Links ({_HINT})")
    _show_matrix(links(machine), ["NUMA", *(str(gpu.numa) for gpu in machine.gpus)])
    say()
    say(f"Bandwidth of each pair [{UNIT}]")
    _show_matrix([[f"{speed:.1f}" if speed else "-" for speed in row] for row in pairs(bandwidths)])
    if machine.n > 1:
        _show_sizes(bandwidths)
    if machine.nics:
        say()
        say("Network cards, and how near each is to each GPU")
        header: list[Cell] = ["", *(f"GPU{i}" for i in range(machine.n))]
        table(
            [header, *([nic.name, *map(level_word, nic.levels)] for nic in machine.nics)], indent=2
        )
    _show_warnings(machine)


def show_choice(
    name: str, machine: Machine, explanation: Explanation, request: ChoiceRequest
) -> None:
    """Write which GPUs to take, and the alternatives."""
    if explanation.chosen is None:
        say(Paint("no such set:", BAD), explanation.reason)
    else:
        _show_chosen(name, explanation, explanation.chosen, request)
        _show_warnings(machine)


def show_catalogue(entries: list[Entry]) -> None:
    """Write the machines of the catalogue."""
    header: list[Cell] = ["NAME", "GPUS", "LINKS", "MACHINE"]
    table(
        [header]
        + [
            [entry.name, str(entry.machine.n), link_kind(entry.machine), entry.title]
            for entry in entries
        ]
    )


def _show_chosen(
    name: str, explanation: Explanation, chosen: GPUSet, request: ChoiceRequest
) -> None:
    say(
        Paint(f"GPU {_gpus(chosen)}", GOOD, bold=True),
        Paint(_speed(chosen), bold=True),
        f"on {name}, mode {request.mode.value}",
    )
    say(f"  {explanation.reason[:1].upper()}{explanation.reason[1:]}.")
    rows: list[list[Cell]] = []
    if explanation.best_possible is not None:
        rows.append(["best possible", "any GPUs", f"{explanation.best_possible:.1f} {UNIT}"])
    for title, gpus in (
        ("index order", explanation.index_order),
        ("runner-up", explanation.runner_up),
        ("left free", explanation.free_after),
    ):
        if gpus:
            rows.append([title, f"GPU {_gpus(gpus)}", _speed(gpus), _gain(chosen, gpus, title)])
    table(rows, indent=2)
    if not explanation.exact:
        say("  ", Paint("Bandwidths of large meshes are upper bounds.", QUIET))


def _gain(chosen: GPUSet, other: GPUSet, title: str) -> str:
    if title == "left free" or not chosen.bandwidth or not other.bandwidth:
        return ""
    if chosen.gpus == other.gpus:
        return "the same set"
    times = chosen.bandwidth / other.bandwidth
    return f"the choice is {times:.1f} times as fast" if round(times, 1) > 1 else ""


def _show_sizes(bandwidths: Table) -> None:
    """Write, for each size, the bandwidth of the best set and of the lowest indices."""
    say()
    say(f"A job's all-reduce over k GPUs of the empty machine [{UNIT}]")
    header: list[Cell] = ["k", "best", "first k GPUs"]
    rows: list[list[Cell]] = [header]
    for k in range(2, bandwidths.n + 1):
        first = bandwidths.bandwidth((1 << k) - 1)
        rows.append([str(k), f"{bandwidths.best_possible(k):.1f}", f"{first:.1f}"])
    table(rows, indent=2)
    if not bandwidths.exact:
        say(Paint("  Bandwidths of large meshes are upper bounds.", QUIET))


def _show_warnings(machine: Machine) -> None:
    for warning in machine.warnings:
        say(Paint("warning:", WARNING), warning)


def _show_matrix(words: list[list[str]], last: list[str] | None = None) -> None:
    names = [f"GPU{i}" for i in range(len(words))]
    rows: list[list[Cell]] = [["", *names, *(last or [])[:1]]]
    for i, row in enumerate(words):
        rows.append([names[i], *map(_coloured, row), *(last or [])[i + 1 : i + 2]])
    table(rows, indent=2)


def _coloured(word: str) -> Cell:
    if word.startswith("NV"):
        return Paint(word, GOOD)
    return Paint(word, QUIET) if word in {"X", "-"} else word


def link_kind(machine: Machine) -> str:
    """Return in two words how a machine's GPUs are linked."""
    if machine.switched:
        return "NVSwitch"
    return "NVLink mesh" if machine.fabric else "PCIe only"


def _gpus(gpus: GPUSet) -> str:
    return ",".join(map(str, gpus.gpus))


def _speed(gpus: GPUSet) -> str:
    return "" if gpus.bandwidth is None else f"{gpus.bandwidth:.1f} {UNIT}"
