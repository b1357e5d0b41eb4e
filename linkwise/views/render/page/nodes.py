"""The nodes on which pods were placed: for each a drawing, and the same as a table."""

from collections.abc import Iterator, Sequence

from linkwise.cluster.mode import NodeMode
from linkwise.topology.machine import Level, Machine
from linkwise.views.output.printer import sentence
from linkwise.views.output.words import card_problems, plural
from linkwise.views.render.page.drawing import drawing_of
from linkwise.views.render.page.markup import Markup, element, name, together
from linkwise.views.render.page.occupancy import GPU, Part, SimulatedNode, State, alike
from linkwise.views.render.page.tile import state_words

OPEN = 4
"""Up to this many nodes, all are unfolded at first."""
DRAWN = 40
"""The number of nodes that are drawn; the others are on the map."""
NAMES = 24
"""The number of equal nodes that are named."""

_PCIE = {
    Level.PSB: "PSB on one board",
    Level.PIX: "PIX below one PCIe switch",
    Level.PXB: "PXB across PCIe switches",
    Level.PHB: "PHB through the host bridge",
    Level.NODE: "NODE across host bridges of a socket",
    Level.SYS: "SYS between sockets",
}


def node_sections(views: Sequence[SimulatedNode]) -> Markup:
    """Return the nodes on which pods were placed; equal nodes as one."""
    groups = alike(views)
    left = sum(map(len, groups[DRAWN:]))
    return together(
        (_node(group, is_open=len(groups) <= OPEN) for group in groups[:DRAWN]),
        element("p", f"{left:,} more are on the map.", class_="quiet") if left else None,
    )


def _node(group: Sequence[SimulatedNode], *, is_open: bool) -> Markup:
    view, *others = group
    machine = view.ledger.node.machine
    more = f" and {len(others)} alike" if others else None
    return element(
        "details",
        element(
            "summary",
            element("h3", name(view.name), more),
            element("span", _facts(view), class_="quiet small"),
            _strip(view),
        ),
        element(
            "div",
            _inside(view, machine) if machine else None,
            _named(view, others) if others else None,
            (element("p", sentence(note), class_="quiet small note") for note in _notes(view)),
            class_="inside",
        ),
        class_="card node row",
        open=is_open,
    )


def _named(view: SimulatedNode, others: Sequence[SimulatedNode]) -> Markup:
    names = [
        (", " if number else "", name(node.name)) for number, node in enumerate(others[:NAMES])
    ]
    left = len(others) - NAMES
    more = f" and {left} more" if left > 0 else None
    return element(
        "p",
        ("Drawn is ", name(view.name), ". The same GPUs of the same gangs and pods are on "),
        names,
        more,
        ".",
        class_="small note",
    )


def _inside(view: SimulatedNode, machine: Machine) -> Markup:
    return element(
        "div",
        element(
            "div",
            drawing_of(view, machine),
            (element("p", text, class_="quiet small note") for text in _links(view, machine)),
        ),
        _table(view, machine),
        class_="halves",
    )


def _facts(view: SimulatedNode) -> str:
    node, n = view.ledger.node, len(view.gpus)
    gpus = f"{n} {plural('GPU', n)}"
    model = f"{n} × {node.machine.model}" if node.machine and node.machine.model else gpus
    words = [model, f"mode {node.mode}", f"{view.ledger.gpus_free} of {gpus} free"]
    words += [f"{view.placed} placed here"] if view.placed else []
    words += ["not ready"] if not node.ready else []
    words += ["unschedulable"] if node.unschedulable else []
    return " · ".join(words)


def _strip(view: SimulatedNode) -> Markup:
    """Return the GPUs in a line, which is shown while the node is folded."""
    return element("span", map(_cell, view.gpus), class_="strip", aria_hidden="true")


def _cell(gpu: GPU) -> Markup:
    unit = gpu.unit or next((part.unit for part in gpu.parts if part.unit), None)
    if unit:
        return element("i", unit.letters, class_=f"placed u{unit.colour}")
    state = State.HELD if gpu.parts else gpu.state
    mark = {State.UNHEALTHY: "!", State.CORDONED: "–", State.UNSURE: "?"}.get(state, "")
    return element("i", mark, class_=state.value)


def _table(view: SimulatedNode, machine: Machine) -> Markup:
    direct = bool(machine.fabric) and not machine.switched
    head = ["GPU", "Allocated to", *(["NVLinks"] if direct else [])]
    return element(
        "table",
        element("caption", f"GPUs of {view.name}", class_="sr"),
        element("thead", element("tr", (element("th", text, scope="col") for text in head))),
        element(
            "tbody",
            (
                element(
                    "tr",
                    element("th", f"GPU{gpu.index}", scope="row"),
                    element("td", _who(gpu)),
                    element("td", _linked(machine, gpu.index)) if direct else None,
                )
                for gpu in view.gpus
            ),
        ),
    )


def _who(gpu: GPU) -> Markup:
    problems = ", ".join(card_problems(gpu.card, is_held=bool(gpu.parts)))
    warning = element("b", problems, class_="bad") if problems else None
    if not gpu.parts:
        return together(warning or element("span", _without_holder(gpu), class_="quiet"))
    parts = (element("li", _holder(part)) for part in gpu.parts)
    free = (
        element("li", f"{gpu.capacity - gpu.taken} {gpu.measure} free", class_="quiet")
        if gpu.capacity
        else None
    )
    return element("ul", element("li", warning) if warning else None, parts, free)


def _without_holder(gpu: GPU) -> str:
    return f"free, {gpu.capacity} {gpu.measure}" if gpu.state is State.SHARED else state_words(gpu)


def _holder(part: Part) -> Markup:
    chip = element("span", part.tag, class_=f"chip u{part.unit.colour}") if part.unit else None
    gang = part.holding.gang
    return together(
        chip,
        " " if chip else None,
        name(part.holding.pod),
        element("span", f" {part.words}", class_="quiet") if part.words else None,
        element("span", " of gang ", name(gang), class_="quiet")
        if gang and not part.unit
        else None,
    )


def _linked(machine: Machine, gpu: int) -> Iterator[Markup]:
    """Yield the peers of a GPU by number of NVLinks, in the words of `nvidia-smi topo -m`."""
    for count in sorted(set(machine.links[gpu]) - {0}):
        peers = [str(j) for j, links in enumerate(machine.links[gpu]) if links == count]
        yield element("span", f"NV{count}: {', '.join(peers)}", class_="piece")
        yield together(" ")


def _links(view: SimulatedNode, machine: Machine) -> Iterator[str]:
    yield f"The links of these GPUs are {view.ledger.node.machine_source.words}."
    levels = {machine.levels[i][j] for i in range(machine.n) for j in range(i)}
    paths = [text for level, text in _PCIE.items() if level in levels]
    if paths:
        yield f"PCIe paths: {', '.join(paths)}."


def _notes(view: SimulatedNode) -> Iterator[str]:
    node = view.ledger.node
    if view.ledger.unaccounted:
        yield f"it is unknown which GPUs are allocated: {view.ledger.unaccounted}"
    if view.counted:
        pods = ", ".join(f"{holding.pod} ({len(holding.gpus)})" for holding in view.counted)
        yield f"NVIDIA's device plugin chooses the GPUs of {pods}"
    if node.mode is NodeMode.MIG or node.mode is NodeMode.DISABLED:
        yield "Linkwise leaves this node alone"
    if node.kubelet.numa_note:
        yield node.kubelet.numa_note
    yield from node.warnings
