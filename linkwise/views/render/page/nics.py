"""The NICs of a machine in its drawing: above the upper GPUs or below the lower ones.

All lengths are in px at scale 1; y grows downwards, and is negative above the layout of the GPUs.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil

from linkwise.topology.machine import NIC, Level, Machine
from linkwise.views.render.page.layout import Layout, Spot
from linkwise.views.render.page.markup import Markup, element, together

WIDTH, HEIGHT = 58, 32
PITCH, ROW = 63, 38
"""Distance between the centres of neighbouring NICs in a row, and of rows."""
_NAME, _RANGES = 8, 2
"""Longest name that is drawn [characters], and the number of ranges of GPUs that are named."""


@dataclass(frozen=True, slots=True)
class _Near:
    """A NIC with the GPUs that are nearest to it."""

    nic: NIC
    level: Level
    gpus: tuple[int, ...]

    @property
    def words(self) -> str:
        """Its nearest GPUs and their level, such as `PIX 0-1`."""
        if self.level is Level.UNKNOWN:
            return "level ?"
        return f"{self.level.name} {_ranges(self.gpus)}"


@dataclass(frozen=True, slots=True)
class DrawnNICs:
    """The NICs of a machine, and the height that they add to its drawing."""

    wires: Markup
    """From the NICs to GPUs that they reach by switches or one host bridge."""
    cards: Markup
    above: float
    below: float


def describe_nics(machine: Machine) -> Iterator[str]:
    """Yield each NIC with its nearest GPUs, for people who do not see the drawing."""
    for near in map(_near, machine.nics):
        yield f"NIC {near.nic.name}, {near.words}"


def draw_nics(machine: Machine, layout: Layout, tile_height: float) -> DrawnNICs:
    """Return the drawing of all NICs, each beside the GPUs that are nearest to it."""
    nics = [_near(nic) for nic in machine.nics]
    upper = _spots([near for near in nics if _is_upper(near, layout)], layout)
    lower = _spots([near for near in nics if not _is_upper(near, layout)], layout)
    placed = [(near, Spot(x, -row * ROW - ROW / 2)) for near, x, row in upper]
    placed += [(near, Spot(x, layout.height + row * ROW + ROW / 2)) for near, x, row in lower]
    return DrawnNICs(
        together(_wires(near, spot, layout, tile_height) for near, spot in placed),
        together(_card(near, spot) for near, spot in placed),
        max((row + 1 for _, _, row in upper), default=0) * ROW,
        max((row + 1 for _, _, row in lower), default=0) * ROW,
    )


def _near(nic: NIC) -> _Near:
    level = max(nic.levels)
    return _Near(nic, level, tuple(i for i, each in enumerate(nic.levels) if each is level))


def _is_upper(near: _Near, layout: Layout) -> bool:
    """Return whether its nearest GPUs are in the upper half; a ring has its NICs below."""
    middle = sum(layout.spots[gpu].y for gpu in near.gpus) / len(near.gpus)
    return not layout.is_ring and middle < layout.height / 2


def _spots(nics: Sequence[_Near], layout: Layout) -> list[tuple[_Near, float, int]]:
    """Return NICs with their x and row, 0 next to the GPUs, in as many rows as they need."""
    wanted = sorted(((_middle(near, layout), near) for near in nics), key=lambda pair: pair[0])
    rows = ceil(len(wanted) / max(1, int(layout.width // PITCH)))
    spots = []
    for row in range(rows):
        part = wanted[row::rows]
        places = _spread([x for x, _ in part], layout.width)
        spots += [(near, x, row) for (_, near), x in zip(part, places, strict=True)]
    return spots


def _middle(near: _Near, layout: Layout) -> float:
    return sum(layout.spots[gpu].x for gpu in near.gpus) / len(near.gpus)


def _spread(wanted: Sequence[float], width: float) -> list[float]:
    """Return places near the wanted ones, in their order, a pitch apart and within the width."""
    alike, seen = Counter(wanted), Counter[float]()
    places: list[float] = []
    for x in wanted:
        centred = x + PITCH * (seen[x] - (alike[x] - 1) / 2)
        seen[x] += 1
        places.append(max(centred, places[-1] + PITCH if places else PITCH / 2))
    after = range(len(places) - 1, -1, -1)
    return [min(x, width - PITCH / 2 - PITCH * n) for x, n in zip(places, after, strict=True)]


def _wires(near: _Near, spot: Spot, layout: Layout, tile_height: float) -> Iterator[Markup]:
    """Yield lines to its nearest GPUs, where no other GPU is between."""
    if near.level <= Level.NODE or layout.is_ring:
        return
    edge, pick = (tile_height / 2, max) if spot.y > 0 else (-tile_height / 2, min)
    outermost = pick(each.y for each in layout.spots)
    for gpu in near.gpus:
        end = layout.spots[gpu]
        if end.y == outermost:
            path = f"M{spot.x:g} {spot.y:g}L{end.x:g} {end.y + edge:g}"
            yield element("path", d=path, class_="wire nic")


def _card(near: _Near, spot: Spot) -> Markup:
    left, top = spot.x - WIDTH / 2, spot.y - HEIGHT / 2
    name, words = near.nic.name, near.words
    short = name if len(name) <= _NAME else f"{name[: _NAME - 1]}…"
    is_tight = len(words) * 6.5 > WIDTH
    rect = element("rect", x=left, y=top, width=WIDTH, height=HEIGHT, rx=4, class_="nic")
    return element(
        "g",
        element("title", f"NIC {name}: {words}"),
        rect,
        element("text", short, x=spot.x, y=top + 13, class_="nic"),
        element(
            "text",
            words,
            x=spot.x,
            y=top + 26,
            class_="nic near",
            textLength=WIDTH - 5 if is_tight else None,
            lengthAdjust="spacingAndGlyphs" if is_tight else None,
        ),
    )


def _ranges(gpus: Sequence[int]) -> str:
    """Return indices as ranges, such as `0-3,6`; of many ranges, the number of GPUs."""
    starts = [gpu for gpu in gpus if gpu - 1 not in gpus]
    ends = [gpu for gpu in gpus if gpu + 1 not in gpus]
    texts = [f"{a}-{b}" if a < b else f"{a}" for a, b in zip(starts, ends, strict=True)]
    return ",".join(texts) if len(texts) <= _RANGES else f"{len(gpus)} GPUs"
