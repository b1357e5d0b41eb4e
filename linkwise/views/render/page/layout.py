"""Lays out a machine in a drawing: positions of GPUs, and paths of the NVLinks between them.

All lengths are in px at scale 1; y grows downwards.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import cos, pi, sin

from linkwise.topology.machine import Machine, gpus_of, mask_of
from linkwise.views.render.page.pcie import blocks, sockets

COLUMNS = 4
"""The number of GPUs in a row on a machine without a mesh."""
PITCH = 96
"""Distance between the centres of neighbouring GPUs."""
MARGIN = 2
TILE = 60
"""Usual width of a GPU's tile."""


@dataclass(frozen=True, slots=True)
class Spot:
    """The centre of a GPU's tile."""

    x: float
    y: float


@dataclass(frozen=True, slots=True)
class Wire:
    """The NVLinks of a pair, or those from a GPU to the NVSwitch."""

    gpus: tuple[int, ...]
    """Two GPUs, or one that is linked to the switch."""
    count: int
    points: tuple[Spot, ...]
    """Its corners."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of a machine."""

    width: float
    height: float
    tile: float
    """Width of the tiles."""
    spots: tuple[Spot, ...]
    """By GPU index."""
    wires: tuple[Wire, ...] = ()
    switch: tuple[Spot, Spot] | None = None
    """Opposite corners of the NVSwitch; None if there is none."""
    is_ring: bool = False
    """The GPUs form a ring, so that sockets cannot be framed."""


def layout_of(machine: Machine, tile_height: float) -> Layout:
    """Return a layout in which no wire crosses a GPU at which it does not end.

    GPUs behind an NVSwitch form two rows along it, a cube mesh two squares, up to four GPUs a
    square; bridged pairs and GPUs without NVLinks form rows by socket. Any other mesh is a ring;
    on a large one a wire may touch a neighbour.
    """
    if machine.switched:
        return _along_switch(machine, tile_height)
    halves = _halves(machine)
    if halves:
        return _two_squares(machine, halves, tile_height)
    if machine.fabric and machine.n <= 4:
        return _square(machine, tile_height)
    rows = _in_rows(machine, tile_height)
    if rows is not None:
        return rows
    return _ring(machine, tile_height)


def _along_switch(machine: Machine, tile_height: float) -> Layout:
    order = [gpu for socket in sockets(machine) for gpu in socket]
    columns = machine.n if machine.n <= COLUMNS else (machine.n + 1) // 2
    tile = TILE if columns <= COLUMNS else 46
    pitch, margin = (PITCH, MARGIN) if columns <= COLUMNS else (52, 14)
    top, bar = 24 + tile_height / 2, 30
    gap = 44
    centre = top + tile_height / 2 + gap + bar / 2
    bottom = 2 * centre - top
    spots = _by_gpu(
        (gpu, Spot(margin + pitch * (place % columns + 0.5), top if place < columns else bottom))
        for place, gpu in enumerate(order)
    )
    width = 2.0 * margin + pitch * columns
    switch = (Spot(6, centre - bar / 2), Spot(width - 6, centre + bar / 2))
    wires = tuple(
        Wire((gpu,), max(machine.links[gpu]), (spots[gpu], Spot(spots[gpu].x, centre)))
        for gpu in gpus_of(machine.fabric)
    )
    height = bottom + tile_height / 2 if machine.n > columns else centre + bar / 2
    return Layout(width, height + 24, tile, spots, wires, switch)


def _halves(machine: Machine) -> tuple[list[int], list[int]] | None:
    """Return the two squares of a cube mesh of eight, row by row; None for other machines.

    The right square is the mirror image of the left one, by the links between them.
    """
    if machine.n != 8 or not machine.fabric:
        return None
    left = max(
        (mask_of((0, *rest)) for rest in combinations(range(1, 8), 3)),
        key=lambda mask: (_inside(machine, mask) + _inside(machine, 255 ^ mask), -mask),
    )
    halves = gpus_of(left), gpus_of(255 ^ left)
    opposite = {
        i: [j for j in range(8) if machine.links[i][j] and (left >> i ^ left >> j) & 1]
        for i in range(8)
    }
    if any(len(peers) != 1 for peers in opposite.values()):
        return None
    rows = _paired(machine, halves[0])
    return rows, [opposite[rows[place]][0] for place in (1, 0, 3, 2)]


def _inside(machine: Machine, mask: int) -> int:
    return sum(machine.links[i][j] > 0 for i, j in combinations(gpus_of(mask), 2))


def _paired(machine: Machine, gpus: Sequence[int]) -> list[int]:
    """Return GPUs ordered so that the nearest over PCIe are neighbours."""
    left, order = list(gpus), list[int]()
    while left:
        first = left.pop(0)
        order.append(first)
        if left:
            mate = max(left, key=lambda gpu: (machine.levels[first][gpu], -gpu))
            left.remove(mate)
            order.append(mate)
    return order


def _two_squares(machine: Machine, halves: tuple[list[int], list[int]], height: float) -> Layout:
    top, pitch, margin = 42 + height / 2, height + 76, 26
    columns = (50.0, 152.0, 264.0, 366.0)
    spots_by_gpu: dict[int, Spot] = {}
    for half, (a, b) in zip(halves, (columns[:2], columns[2:]), strict=True):
        for place, gpu in enumerate(half):
            spots_by_gpu[gpu] = Spot((a, b)[place % 2], top + pitch * (place // 2))
    spots = _by_gpu(spots_by_gpu.items())
    bottom = top + pitch

    def corners(i: int, j: int) -> tuple[Spot, ...]:
        a, b = spots[i], spots[j]
        if a.y != b.y or {a.x, b.x} != {columns[0], columns[3]}:
            return a, b
        # A straight wire would run behind the two tiles between.
        y = 12 if a.y == top else bottom + height / 2 + margin + 4
        return a, Spot(a.x, y), Spot(b.x, y), b

    wires = tuple(Wire((i, j), machine.links[i][j], corners(i, j)) for i, j in _pairs(machine))
    return Layout(416, bottom + height / 2 + margin + 16, TILE, spots, wires)


def _square(machine: Machine, height: float) -> Layout:
    top = 34 + height / 2
    spots = _by_gpu(
        (gpu, Spot(60 + 140 * (place % 2), top + (height + 84) * (place // 2)))
        for place, gpu in enumerate(_paired(machine, range(machine.n)))
    )
    bottom = max(spot.y for spot in spots) + height / 2
    return Layout(260, bottom + 34, TILE, spots, _straight(machine, spots))


def _in_rows(machine: Machine, height: float) -> Layout | None:
    """Return sockets as rows of near GPUs; None if an NVLink would run behind a tile."""
    spots_by_gpu: dict[int, Spot] = {}
    x, y, lowest = 0, 28 + height / 2, 0.0
    for socket in sockets(machine):
        width = min(len(socket), COLUMNS)
        if x + width > COLUMNS:
            x, y = 0, lowest + height + 50
        column, row = 0, y
        for block in blocks(machine, socket):
            if column and column + len(block) > COLUMNS:
                column, row = 0, row + height + 34
            for gpu in block:
                if column == COLUMNS:
                    column, row = 0, row + height + 34
                spots_by_gpu[gpu] = Spot(MARGIN + PITCH * (x + column + 0.5), row)
                column += 1
        lowest = max(lowest, row)
        x += width
    spots = _by_gpu(spots_by_gpu.items())
    wires = _straight(machine, spots)
    for wire in wires:
        a, b = wire.points
        if a.y != b.y or abs(a.x - b.x) > PITCH:
            return None
    width = 2 * MARGIN + PITCH * round((max(spot.x for spot in spots) + 30) / PITCH)
    return Layout(width, lowest + height / 2 + 28, TILE, spots, wires)


def _ring(machine: Machine, height: float) -> Layout:
    across, down = (175, 118 + height / 2) if machine.n <= 8 else (182, 210)
    tile = TILE if machine.n <= 8 else 46
    middle = down + height / 2 + 14
    spots = tuple(
        Spot(
            208 + across * sin(2 * pi * gpu / machine.n),
            middle - down * cos(2 * pi * gpu / machine.n),
        )
        for gpu in range(machine.n)
    )
    return Layout(416, 2 * middle, tile, spots, _straight(machine, spots), is_ring=True)


def _by_gpu(spots: Iterable[tuple[int, Spot]]) -> tuple[Spot, ...]:
    return tuple(spot for _, spot in sorted(spots, key=lambda pair: pair[0]))


def _pairs(machine: Machine) -> Iterator[tuple[int, int]]:
    return (pair for pair in combinations(range(machine.n), 2) if machine.links[pair[0]][pair[1]])


def _straight(machine: Machine, spots: tuple[Spot, ...]) -> tuple[Wire, ...]:
    return tuple(
        Wire((i, j), machine.links[i][j], (spots[i], spots[j])) for i, j in _pairs(machine)
    )
