"""The catalogue of machines by name, for nodes without an agent and for users without a matrix."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from linkwise.topology.constants import constants_of_models
from linkwise.topology.machine import GPU, NIC, Level, Machine, TopologyError
from linkwise.topology.shapes import SHAPES, Shape

NAMES: tuple[str, ...] = tuple(shape.name for shape in SHAPES)
"""The names of the catalogue."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One machine of the catalogue."""

    name: str
    machine: Machine
    title: str
    source: str
    """Sources of links, levels and NICs, and inferred parts."""


@lru_cache(maxsize=len(SHAPES))
def entry(name: str) -> Entry:
    """Return a machine of the catalogue.

    NVLinks and PCIe have the speeds of the GPU's architecture; those of host bridge and sockets are
    the defaults, since a name does not describe the host.

    Raises:
        TopologyError: No machine has that name; the message lists the names.
    """
    for shape in SHAPES:
        if shape.name == name:
            return Entry(name, _machine(shape), shape.title, shape.source)
    raise TopologyError(f"no machine {name[:60]!r} in the catalogue; it has {', '.join(NAMES)}")


def _machine(shape: Shape) -> Machine:
    gpus = range(len(shape.numa))
    links = {pair: count for count, groups in shape.links for pair in _pairs(groups)}
    levels = {(i, i): Level.UNKNOWN for i in gpus}
    if not shape.levels:
        levels |= dict.fromkeys(links, Level.UNKNOWN)
    # The nearest level is written first, so that it is filled in last.
    for name, groups in reversed(shape.levels):
        levels |= dict.fromkeys(_pairs(groups), Level[name])
    return Machine(
        links=tuple(tuple(links.get((i, j), 0) for j in gpus) for i in gpus),
        levels=tuple(tuple(levels.get((i, j), Level.SYS) for j in gpus) for i in gpus),
        gpus=tuple(GPU(node, memory=shape.memory) for node in shape.numa),
        constants=constants_of_models(shape.model),
        switched=shape.switched,
        nics=tuple(
            NIC(name, tuple(Level[word] for word in words.split())) for name, words in shape.nics
        ),
        model=shape.model,
    )


def _pairs(groups: str) -> Iterator[tuple[int, int]]:
    """Yield both orders of every pair inside each group."""
    for group in groups.split():
        first, dash, last = group.partition("-")
        gpus = range(int(first), int(last) + 1) if dash else [int(g) for g in group.split(",")]
        yield from ((i, j) for i in gpus for j in gpus if i != j)
