"""The drawing of a node: its GPUs with their holders, its NVLinks, sockets, switches and NICs."""

from collections.abc import Iterator, Sequence

from linkwise.topology.machine import Machine
from linkwise.views.render.page.layout import Layout, Spot, Wire, layout_of
from linkwise.views.render.page.markup import Markup, element, together
from linkwise.views.render.page.nics import describe_nics, draw_nics
from linkwise.views.render.page.occupancy import SimulatedNode
from linkwise.views.render.page.pcie import Group, groups
from linkwise.views.render.page.tile import SHARED_HEIGHT, WHOLE_HEIGHT, state_words, tile

_MARGINS = (14, 11, 7)
"""Distance between tiles and the frame around them, by the frame's depth."""

DEFINITIONS = element(
    "svg",
    element(
        "defs",
        element(
            "pattern",
            element("rect", width=6, height=6, fill="var(--surface)"),
            element("path", d="M-1 1 1 -1M0 6 6 0M5 7 7 5", stroke="var(--hatch)"),
            id="hatch",
            width=6,
            height=6,
            patternUnits="userSpaceOnUse",
        ),
    ),
    class_="away",
    aria_hidden="true",
)
"""The definitions that all drawings use; a page has them once."""


def drawing_of(view: SimulatedNode, machine: Machine) -> Markup:
    """Return the SVG of a node; its table shows the same as text."""
    shared = any(gpu.capacity for gpu in view.gpus)
    height = SHARED_HEIGHT if shared else WHOLE_HEIGHT
    layout = layout_of(machine, height)
    known = groups(machine) if view.ledger.node.machine_known and not layout.is_ring else ()
    nics = draw_nics(machine, layout, height)
    whole = layout.height + nics.above + nics.below
    label = f"Drawing of {view.name}: {len(view.gpus)} GPUs; the table names their holders"
    return element(
        "svg",
        element("desc", _description(view, machine)),
        nics.wires,
        (_frame(group, layout, height) for group in known),
        (_wire(wire, view) for wire in layout.wires),
        _switch(layout),
        (
            tile(gpu, spot, (layout.tile, height))
            for gpu, spot in zip(view.gpus, layout.spots, strict=True)
        ),
        _counts(layout),
        nics.cards,
        role="img",
        aria_label=label,
        viewBox=f"0 {-nics.above:g} {layout.width:g} {whole:g}",
        width=layout.width,
        height=whole,
    )


def _description(view: SimulatedNode, machine: Machine) -> str:
    gpus = (f"GPU{gpu.index} {state_words(gpu)}" for gpu in view.gpus)
    return "; ".join([*gpus, *describe_nics(machine)])


def _frame(group: Group, layout: Layout, height: float) -> Markup | None:
    """Return the frame around a group; None if other GPUs would be inside it."""
    spots = [layout.spots[gpu] for gpu in group.gpus]
    margin = _MARGINS[group.depth]
    left = min(spot.x for spot in spots) - layout.tile / 2 - margin
    right = max(spot.x for spot in spots) + layout.tile / 2 + margin
    top = min(spot.y for spot in spots) - height / 2 - margin
    bottom = max(spot.y for spot in spots) + height / 2 + margin
    inside = sum(left < spot.x < right and top < spot.y < bottom for spot in layout.spots)
    across = layout.switch and top < layout.switch[0].y < bottom
    if inside > len(spots) or across:
        return None
    rect = element(
        "rect",
        x=left,
        y=top,
        width=right - left,
        height=bottom - top,
        rx=10 if group.depth else 14,
        class_=f"frame d{group.depth}",
    )
    # The label of a socket is away from the middle, where wires run; that of a switch, opposite.
    is_upper = top + bottom <= layout.height + 1
    middle, line = (left + right) / 2, top if is_upper is not bool(group.depth) else bottom
    text = element("text", group.label, x=middle, y=line + 3.5, class_="frame clear")
    return together(rect, text)


def wire_kind(count: int) -> str:
    """Return the style for a number of NVLinks: one line, two, or a thick one."""
    return {1: "one", 2: "two"}.get(count, "many")


def _wire(wire: Wire, view: SimulatedNode) -> Markup:
    kind = wire_kind(wire.count) if len(wire.gpus) == 2 else "many"
    path = _path(wire.points)
    units = {
        gpu.unit.letters if gpu.unit else None for gpu in map(view.gpus.__getitem__, wire.gpus)
    }
    unit = view.gpus[wire.gpus[0]].unit
    lit = element("path", d=path, class_=f"wire lit u{unit.colour}") if unit else None
    return together(
        lit if len(units) == 1 else None,
        element("path", d=path, class_=f"wire {kind}"),
        element("path", d=path, class_="wire gap") if kind == "two" else None,
    )


def _path(points: Sequence[Spot]) -> str:
    """Return straight lines between the points, with rounded corners."""
    first, *rest = points
    words = [f"M{first.x:g} {first.y:g}"]
    for before, here, after in zip(points, rest, rest[1:], strict=False):
        a, b = _towards(here, before), _towards(here, after)
        words.append(f"L{a.x:g} {a.y:g}Q{here.x:g} {here.y:g} {b.x:g} {b.y:g}")
    return "".join([*words, f"L{rest[-1].x:g} {rest[-1].y:g}"])


def _towards(corner: Spot, other: Spot) -> Spot:
    away = abs(other.x - corner.x) + abs(other.y - corner.y)
    part = 10 / away
    return Spot(corner.x + (other.x - corner.x) * part, corner.y + (other.y - corner.y) * part)


def _switch(layout: Layout) -> Markup | None:
    if layout.switch is None:
        return None
    a, b = layout.switch
    counts = sorted({wire.count for wire in layout.wires})
    each = " or ".join(map(str, counts))
    return together(
        element("rect", x=a.x, y=a.y, width=b.x - a.x, height=b.y - a.y, rx=6, class_="switch"),
        element(
            "text",
            f"NVSwitch · {each} links to each GPU",
            x=(a.x + b.x) / 2,
            y=(a.y + b.y) / 2 + 4,
            class_="count",
        ),
    )


def _counts(layout: Layout) -> Iterator[Markup]:
    """Yield the numbers on thick wires; on diagonal ones, away from where they cross."""
    for wire in layout.wires:
        if len(wire.gpus) == 2 and wire_kind(wire.count) == "many":
            a, b = wire.points[0], wire.points[-1]
            part = 0.34 if a.x != b.x and a.y != b.y else 0.5
            x, y = a.x + part * (b.x - a.x), a.y + part * (b.y - a.y)
            yield element("text", str(wire.count), x=x, y=y + 4, class_="count clear")
