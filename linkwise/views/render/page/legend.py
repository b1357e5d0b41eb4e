"""The legend of the drawings: the signs that they use."""

from collections.abc import Iterator, Sequence
from itertools import combinations

from linkwise.views.render.page.drawing import wire_kind
from linkwise.views.render.page.layout import TILE, Spot
from linkwise.views.render.page.markup import Markup, element, together
from linkwise.views.render.page.occupancy import SimulatedNode, State
from linkwise.views.render.page.pcie import groups
from linkwise.views.render.page.tile import WHOLE_HEIGHT, tile

_STATES = {
    State.PLACED: "placed now: the gang's or pod's letter, and the member's number",
    State.HELD: "allocated before",
    State.COUNTED: "allocated by count: NVIDIA's plugin chooses",
    State.UNSURE: "unknown whether it is allocated",
}
_WIRES = {
    "one": "one NVLink",
    "two": "two NVLinks",
    "many": "number of NVLinks",
}
_FRAMES = {
    0: "GPUs of one socket, and the longest PCIe path between two of them",
    1: "below PCIe switches",
    2: "below one PCIe switch",
}


def legend(views: Sequence[SimulatedNode]) -> Markup:
    """Return the meaning of every sign in the drawings of these nodes."""
    entries = [*_states(views), *_wires(views), *_frames(views), *_nics(views)]
    return element("ul", (element("li", entry) for entry in entries), class_="legend")


def _states(views: Sequence[SimulatedNode]) -> Iterator[Markup]:
    gpus = [gpu for view in views for gpu in view.gpus]
    for state, meaning in _STATES.items():
        sample = next((gpu for gpu in gpus if gpu.state is state), None)
        if sample:
            centre = Spot(TILE / 2 + 1, WHOLE_HEIGHT / 2 + 1)
            drawn = tile(sample, centre, (TILE, WHOLE_HEIGHT))
            yield together(_svg(drawn, TILE + 2, WHOLE_HEIGHT + 2, 0.75), meaning)


def _wires(views: Sequence[SimulatedNode]) -> Iterator[Markup]:
    direct = [view for view in views if not _switched(view)]
    counts = {count for view in direct for count in _link_counts(view)}
    kinds = {wire_kind(count) for count in counts}
    for kind, meaning in _WIRES.items():
        if kind in kinds:
            yield together(_line(f"wire {kind}", gap=kind == "two"), meaning)
    lit = next((u for view in views if counts or _switched(view) for u in view.units), None)
    if lit and any(gpu.state is State.PLACED for view in views for gpu in view.gpus):
        yield together(_line(f"wire lit u{lit.colour}"), "NVLinks inside a gang or pod")


def _frames(views: Sequence[SimulatedNode]) -> Iterator[Markup]:
    known = [view.ledger.node for view in views if view.ledger.node.machine_known]
    depths = {group.depth for node in known if node.machine for group in groups(node.machine)}
    for depth, meaning in _FRAMES.items():
        if depth in depths:
            frame = element("rect", x=1, y=1, width=34, height=18, rx=5, class_=f"frame d{depth}")
            yield together(_svg(frame, 36, 20, 1), meaning)


def _nics(views: Sequence[SimulatedNode]) -> Iterator[Markup]:
    machines = (view.ledger.node.machine for view in views)
    if any(machine and machine.nics for machine in machines):
        card = element("rect", x=1, y=1, width=34, height=18, rx=4, class_="nic")
        yield together(_svg(card, 36, 20, 1), "NIC, with the PCIe path to its nearest GPUs")


def _switched(view: SimulatedNode) -> bool:
    machine = view.ledger.node.machine
    return machine is not None and machine.switched


def _link_counts(view: SimulatedNode) -> set[int]:
    machine = view.ledger.node.machine
    if machine is None:
        return set()
    return {machine.links[i][j] for i, j in combinations(range(machine.n), 2)} - {0}


def _line(style: str, *, gap: bool = False) -> Markup:
    path = "M4 10H32"
    inner = element("path", d=path, class_="wire gap") if gap else None
    return _svg(together(element("path", d=path, class_=style), inner), 36, 20, 1)


def _svg(inner: Markup, width: float, height: float, scale: float) -> Markup:
    return element(
        "svg",
        inner,
        aria_hidden="true",
        viewBox=f"0 0 {width:g} {height:g}",
        width=float(width * scale),
        height=float(height * scale),
    )
