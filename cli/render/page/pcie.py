"""What is near what over PCIe on one machine: its sockets, and the switches below them."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations

from topology.machine import Level, Machine


@dataclass(frozen=True, slots=True)
class Group:
    """GPUs that belong together."""

    label: str
    gpus: tuple[int, ...]
    depth: int
    """0 for a socket, 1 below several switches, 2 below one."""


def sockets(machine: Machine) -> list[list[int]]:
    """Return the GPUs of each socket, by NUMA node; where that tells nothing, by PCIe level."""
    gpus = range(machine.n)
    found = clusters(gpus, lambda i, j: machine.numa[i] == machine.numa[j])
    if _tells(found):
        return found
    found = clusters(gpus, lambda i, j: machine.levels[i][j] is not Level.SYS)
    return found if _tells(found) else [list(gpus)]


def _tells(found: list[list[int]]) -> bool:
    return len(found) > 1 and any(len(one) > 1 for one in found)


def blocks(machine: Machine, socket: Iterable[int]) -> list[list[int]]:
    """Return a socket's GPUs in blocks of those that share switches or an NVLink, nearest first."""

    def joined(level: Level) -> Callable[[int, int], bool]:
        within = _within(machine, level)
        return lambda i, j: bool(machine.links[i][j]) or within(i, j)

    return [
        [gpu for near in clusters(block, joined(Level.PIX)) for gpu in near]
        for block in clusters(socket, joined(Level.PXB))
    ]


def groups(machine: Machine) -> Iterator[Group]:
    """Yield what is worth a frame in a drawing."""
    many = len(set(machine.numa)) > 1
    for socket in sockets(machine):
        numa = {machine.numa[gpu] for gpu in socket}
        words = [_numa(numa.pop())] if many and len(numa) == 1 else []
        words += [level.name for level in _worst(machine, socket)]
        if words:
            yield Group(", ".join(words), tuple(socket), 0)
        yield from _switches(machine, socket)


def _switches(machine: Machine, socket: list[int]) -> Iterator[Group]:
    seen = [socket]
    for depth, level in ((2, Level.PIX), (1, Level.PXB)):
        for found in clusters(socket, _within(machine, level)):
            if len(found) > 1 and found not in seen:
                seen.append(found)
                yield Group(level.name, tuple(found), depth)


def _within(machine: Machine, level: Level) -> Callable[[int, int], bool]:
    """Return the test whether two GPUs meet at this level or nearer."""
    return lambda i, j: machine.levels[i][j] >= level


def _worst(machine: Machine, gpus: list[int]) -> list[Level]:
    """Return the farthest level between GPUs, in a list; an empty one where nothing tells it."""
    levels = {machine.levels[i][j] for i, j in combinations(gpus, 2)} - {Level.UNKNOWN}
    return [min(levels)] if levels else []


def _numa(node: int) -> str:
    return f"NUMA {node}" if node >= 0 else "NUMA ?"


def clusters(gpus: Iterable[int], joined: Callable[[int, int], bool]) -> list[list[int]]:
    """Return the parts that chains of joined pairs hold together, by their lowest GPU."""
    found: list[list[int]] = []
    for gpu in gpus:
        touched = [one for one in found if any(joined(gpu, other) for other in one)]
        merged = sorted([*(other for one in touched for other in one), gpu])
        found = sorted([one for one in found if one not in touched] + [merged])
    return found
