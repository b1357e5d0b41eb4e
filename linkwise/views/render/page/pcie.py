"""Groups the GPUs of a machine by PCIe: its sockets, and the switches below them."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations

from linkwise.topology.machine import Level, Machine


@dataclass(frozen=True, slots=True)
class Group:
    """GPUs that belong together."""

    label: str
    gpus: tuple[int, ...]
    depth: int
    """0 for a socket, 1 below several switches, 2 below one."""


def sockets(machine: Machine) -> list[list[int]]:
    """Return the GPUs of each socket, by NUMA node, or by PCIe level if that is not meaningful."""
    gpus = range(machine.n)
    by_numa = clusters(gpus, lambda i, j: machine.gpus[i].numa == machine.gpus[j].numa)
    if _is_meaningful(by_numa):
        return by_numa
    by_level = clusters(gpus, lambda i, j: machine.levels[i][j] is not Level.SYS)
    return by_level if _is_meaningful(by_level) else [list(gpus)]


def _is_meaningful(groups: list[list[int]]) -> bool:
    return len(groups) > 1 and any(len(group) > 1 for group in groups)


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
    """Yield the groups that get a frame in a drawing."""
    many = len({gpu.numa for gpu in machine.gpus}) > 1
    for socket in sockets(machine):
        numa = {machine.gpus[gpu].numa for gpu in socket}
        words = [_numa(numa.pop())] if many and len(numa) == 1 else []
        words += [level.name for level in _worst(machine, socket)]
        if words:
            yield Group(", ".join(words), tuple(socket), 0)
        yield from _switches(machine, socket)


def _switches(machine: Machine, socket: list[int]) -> Iterator[Group]:
    seen = [socket]
    for depth, level in ((2, Level.PIX), (1, Level.PXB)):
        for group in clusters(socket, _within(machine, level)):
            if len(group) > 1 and group not in seen:
                seen.append(group)
                yield Group(level.name, tuple(group), depth)


def _within(machine: Machine, level: Level) -> Callable[[int, int], bool]:
    """Return a predicate: two GPUs are joined at this level or a nearer one."""
    return lambda i, j: machine.levels[i][j] >= level


def _worst(machine: Machine, gpus: list[int]) -> list[Level]:
    """Return the farthest level between GPUs in a list, which is empty if no level is known."""
    levels = {machine.levels[i][j] for i, j in combinations(gpus, 2)} - {Level.UNKNOWN}
    return [min(levels)] if levels else []


def _numa(node: int) -> str:
    return f"NUMA {node}" if node >= 0 else "NUMA ?"


def clusters(gpus: Iterable[int], joined: Callable[[int, int], bool]) -> list[list[int]]:
    """Return the connected components of a relation, ordered by their lowest GPU."""
    components: list[list[int]] = []
    for gpu in gpus:
        touched = [part for part in components if any(joined(gpu, other) for other in part)]
        merged = sorted([*(other for part in touched for other in part), gpu])
        components = sorted([part for part in components if part not in touched] + [merged])
    return components
