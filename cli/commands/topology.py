"""`linkwise topology`: what links a machine's GPUs, and which of them to take."""

from cli.render import topology_json
from cli.render.output import BAD, DOUBT, GOOD, QUIET, Cell, Format, Paint, emit, say, table
from cli.render.topology_json import links, pairs, word
from manifest.value import InputError
from topology.catalogue import NAMES, entry
from topology.choice import Ask
from topology.explain import Explanation, GPUSet, explain
from topology.machine import Machine, mask_of
from topology.table import Table, table_of

UNIT = "GB/s"
_HINT = (
    "NV2: two NVLinks; PIX, PXB: PCIe switches; PHB, NODE: one socket's host bridges; "
    "SYS: between sockets"
)


def show(name: str, machine: Machine, output: Format) -> int:
    """Show a machine's links and bandwidths; return the exit code."""
    bandwidths = table_of(machine)
    if output is not Format.TABLE:
        emit(topology_json.machine_report(machine, bandwidths), output)
        return 0
    say(Paint(name, bold=True), f"{machine.n} GPUs, {kind_of(machine)}, class {bandwidths.key}")
    say()
    say(f"Links ({_HINT})")
    _matrix(links(machine), ["NUMA", *map(str, machine.numa)])
    say()
    say(f"Bandwidth of each pair [{UNIT}]")
    _matrix([[f"{speed:.1f}" if speed else "-" for speed in row] for row in pairs(bandwidths)])
    if machine.n > 1:
        _show_sizes(bandwidths)
    if machine.nics:
        say()
        say("Network cards, and how near each is to each GPU")
        names: list[Cell] = ["", *(f"GPU{i}" for i in range(machine.n))]
        table([names, *([nic.name, *map(word, nic.levels)] for nic in machine.nics)], indent=2)
    _show_warnings(machine)
    return 0


def best(name: str, machine: Machine, ask: Ask, output: Format) -> int:
    """Show the set of GPUs to take, and what else there was; return the exit code."""
    bandwidths = table_of(machine)
    found = explain(bandwidths, ask)
    if output is not Format.TABLE:
        emit(topology_json.choice(machine, bandwidths, ask, found), output)
    elif found.chosen is None:
        say(Paint("no such set:", BAD), found.reason)
    else:
        _show_choice(name, found, found.chosen, ask)
        _show_warnings(machine)
    return 0 if found.chosen else 1


def list_machines(output: Format) -> int:
    """Show the catalogue; return the exit code."""
    entries = [entry(name) for name in NAMES]
    if output is not Format.TABLE:
        emit(topology_json.machine_list(entries), output)
        return 0
    header: list[Cell] = ["NAME", "GPUS", "LINKS", "MACHINE"]
    table(
        [header]
        + [[one.name, str(one.machine.n), kind_of(one.machine), one.title] for one in entries]
    )
    return 0


def gpus_in(text: str, n: int, option: str) -> int:
    """Return the mask of a list of GPUs such as `0-3,6`.

    Raises:
        InputError: Something in it is no index of one of the machine's n GPUs.
    """
    gpus = set[int]()
    for item in filter(None, (part.strip() for part in text.split(","))):
        first, dash, last = item.partition("-")
        taken = range(_index(first), _index(last if dash else first) + 1)
        if not taken or not 0 <= taken[0] <= taken[-1] < n:
            raise InputError(
                f"{option}: {item!r} is no GPU of this machine. Write some of 0 to {n - 1}, "
                "such as 0-3,6."
            )
        gpus.update(taken)
    return mask_of(gpus)


def _index(text: str) -> int:
    """Return a GPU's index; -1 where it is none."""
    word = text.strip()
    return int(word) if word.isascii() and word.isdigit() and len(word) <= 4 else -1


def _show_choice(name: str, found: Explanation, chosen: GPUSet, ask: Ask) -> None:
    say(
        Paint(f"GPU {_gpus(chosen)}", GOOD, bold=True),
        Paint(_speed(chosen), bold=True),
        f"on {name}, mode {ask.mode.value}",
    )
    say(f"  {found.reason[:1].upper()}{found.reason[1:]}.")
    rows: list[list[Cell]] = []
    if found.best_possible is not None:
        rows.append(["best possible", "any GPUs", f"{found.best_possible:.1f} {UNIT}"])
    for title, gpus in (
        ("index order", found.index_order),
        ("runner-up", found.runner_up),
        ("left free", found.left),
    ):
        if gpus:
            rows.append([title, f"GPU {_gpus(gpus)}", _speed(gpus), _times(chosen, gpus, title)])
    table(rows, indent=2)
    if not found.exact:
        say("  ", Paint("Bandwidths of large meshes are upper bounds.", QUIET))


def _times(chosen: GPUSet, other: GPUSet, title: str) -> str:
    if title == "left free" or not chosen.bandwidth or not other.bandwidth:
        return ""
    if chosen.gpus == other.gpus:
        return "the same set"
    times = chosen.bandwidth / other.bandwidth
    return f"the choice is {times:.1f} times as fast" if round(times, 1) > 1 else ""


def _show_sizes(bandwidths: Table) -> None:
    """Show for each size what the best set gives, and what taking the lowest indices gives."""
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
        say(Paint("warning:", DOUBT), warning)


def _matrix(words: list[list[str]], last: list[str] | None = None) -> None:
    names = [f"GPU{i}" for i in range(len(words))]
    rows: list[list[Cell]] = [["", *names, *(last or [])[:1]]]
    for i, row in enumerate(words):
        rows.append([names[i], *map(_coloured, row), *(last or [])[i + 1 : i + 2]])
    table(rows, indent=2)


def _coloured(word: str) -> Cell:
    if word.startswith("NV"):
        return Paint(word, GOOD)
    return Paint(word, QUIET) if word in {"X", "-"} else word


def kind_of(machine: Machine) -> str:
    """Return in two words what links a machine's GPUs."""
    if machine.switched:
        return "NVSwitch"
    return "NVLink mesh" if machine.fabric else "PCIe only"


def _gpus(gpus: GPUSet) -> str:
    return ",".join(map(str, gpus.gpus))


def _speed(gpus: GPUSet) -> str:
    return "" if gpus.bandwidth is None else f"{gpus.bandwidth:.1f} {UNIT}"
