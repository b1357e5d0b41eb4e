"""The map of all nodes with its controls and legend; a script draws the nodes."""

from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from importlib.resources import files

from linkwise.topology.table import table_of
from linkwise.views.analysis.fleet import FleetNode, NamespaceUsage, nodes_by_free_gpus
from linkwise.views.output.words import plural
from linkwise.views.render.page.drawing import drawing_of
from linkwise.views.render.page.fleet_data import fleet_json
from linkwise.views.render.page.markup import Markup, element, folded, name, together
from linkwise.views.render.page.occupancy import empty_view

SCRIPT = Markup(
    files("linkwise.views.render.page").joinpath("fleet.js").read_text(encoding="utf-8")
)
"""The only script of a page."""
SCRIPT_HASH = f"'sha256-{b64encode(sha256(SCRIPT.encode()).digest()).decode()}'"
"""The script's source expression in the page's Content-Security-Policy."""
NAMESPACES = 12
"""The number of namespaces that are not folded."""

_CONTROLS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "colour": ("Colour", {"used": "Utilization", "fragmented": "Fragmentation"}),
    "group": (
        "Group",
        {"pool": "Pool", "model": "GPU model", "mode": "Mode", "none": "None"},
    ),
    "sort": (
        "Sort",
        {
            "name": "Name",
            "free": "Most free",
            "used": "Most allocated",
            "fragmented": "Most fragmented",
        },
    ),
    "show": (
        "Show",
        {
            "all": "All nodes",
            "free": "All GPUs free",
            "partly": "Partly allocated",
            "full": "No GPU free",
            "new": "Placed now",
            "faulty": "With a problem",
        },
    ),
}
_SCALES = {
    "used": {
        "h0": "none allocated",
        "h1": "under 25 %",
        "h2": "under 50 %",
        "h3": "under 75 %",
        "h4": "under 100 %",
        "h5": "100 %",
    },
    "fragmented": {
        "f0": "all GPUs free",
        "f1": "few GPUs free",
        "f2": "about half free",
        "f3": "most free, but not all",
        "full": "no GPU free",
    },
}


def fleet_section(nodes: Sequence[FleetNode], *, placed: bool) -> Markup:
    """Return the map with its controls.

    Args:
        nodes: The fleet.
        placed: The page shows a simulation, which placed pods.
    """
    drawings: dict[object, tuple[int, Markup]] = {}
    numbers = [_drawn(node, drawings) for node in nodes]
    return together(
        element("h2", "Nodes", id="fleet"),
        element("noscript", element("p", "The map needs JavaScript.", class_="note")),
        element("div", _search(), list(_selects(placed=placed)), class_="controls"),
        element(
            "div",
            list(_scales()),
            element(
                "span",
                "A number is how many GPUs are free.",
                id="number",
                class_="quiet small",
                hidden=True,
            ),
            element("span", list(_gpu_signs(placed=placed)), id="gpu-signs", class_="signs"),
            element("span", "", id="count", class_="quiet small", role="status"),
            class_="keys",
        ),
        element("div", "", id="map", aria_label="Nodes"),
        element("dialog", "", id="node"),
        (element("template", drawing, id=f"d{number}") for number, drawing in drawings.values()),
        element(
            "script",
            Markup(fleet_json(nodes, numbers)),
            id="fleet-data",
            type="application/json",
        ),
    )


def _drawn(node: FleetNode, drawings: dict[object, tuple[int, Markup]]) -> int | None:
    """Return the number of a node's drawing; equal machines share row."""
    machine = node.node.machine
    if machine is None or not node.node.cards:
        return None
    shared = node.node.replicas or node.node.mode.shares_memory
    key = id(table_of(machine)), bool(shared), node.node.machine_known
    if key not in drawings:
        drawings[key] = len(drawings), drawing_of(empty_view(node.node), machine)
    return drawings[key][0]


def _search() -> Markup:
    return element(
        "label",
        "Search",
        element("input", type="search", id="search", placeholder="node, pod, gang, namespace/"),
    )


def _selects(*, placed: bool) -> Iterator[Markup]:
    for control, (label, options) in _CONTROLS.items():
        shown = (
            element("option", text, value=value)
            for value, text in options.items()
            if placed or value != "new"
        )
        yield element("label", label, element("select", shown, id=control))


def _scales() -> Iterator[Markup]:
    for colour, steps in _SCALES.items():
        entries = (
            element("li", element("i", class_=f"n {style}"), text) for style, text in steps.items()
        )
        yield element("ul", entries, class_="scale", data_colour=colour)


def _gpu_signs(*, placed: bool) -> Iterator[Markup]:
    signs = {"s0": "free GPU", "s1": "allocated", "part": "shared", "s5": "unhealthy"}
    for style, text in {**signs, **({"s2": "placed now"} if placed else {})}.items():
        inner = element("b", style="height:50%") if style == "part" else None
        yield element("span", element("i", inner, class_=f"g {style}"), text)


def totals(nodes: Sequence[FleetNode]) -> Markup:
    """Return the totals of the fleet: nodes, GPUs, free and stranded GPUs."""
    gpus, free = sum(len(node.states) for node in nodes), sum(node.free for node in nodes)
    stranded = sum(node.stranded for node in nodes)
    facts = {
        "Nodes with GPUs": f"{len(nodes):,}",
        "GPUs": f"{gpus:,}",
        "Free GPUs": f"{free:,}",
        "Free on partly allocated nodes": f"{stranded:,}",
    }
    return element(
        "div",
        (
            element("div", element("b", number), element("span", fact), class_="fact")
            for fact, number in facts.items()
        ),
        class_="facts",
    )


def free_gpus_chart(nodes: Sequence[FleetNode]) -> Markup | None:
    """Return the number of nodes by free GPUs as bars; None if no GPU is free."""
    counts = nodes_by_free_gpus(nodes)
    if not counts:
        return None
    most = max(counts.values())
    return together(
        element("h2", "Free GPUs by node"),
        element("p", "A pod for n GPUs fits a node with n or more free ones.", class_="quiet"),
        element(
            "dl",
            (
                together(
                    element(
                        "dt",
                        element("span", f"{free} free"),
                        element("b", f"{count:,} {plural('node', count)}"),
                    ),
                    element(
                        "dd", element("i", class_="best", style=f"width:{100 * count / most:.1f}%")
                    ),
                )
                for free, count in counts.items()
            ),
            class_="bars card",
        ),
    )


def namespace_table(usage: Sequence[NamespaceUsage]) -> Markup | None:
    """Return the usage of each namespace; None if no GPU is used."""
    if not usage:
        return None
    shown, rest = usage[:NAMESPACES], usage[NAMESPACES:]
    return together(
        element("h2", "Holders of GPUs"),
        element(
            "div",
            _usage_table(shown),
            folded(f"{len(rest)} more namespaces", _usage_table(rest)) if rest else None,
            class_="card",
        ),
    )


def _usage_table(usage: Sequence[NamespaceUsage]) -> Markup:
    heads = ("Namespace", "GPUs", "Shared", "Pods", "Nodes", "")
    return element(
        "table",
        element("thead", element("tr", (element("th", text, scope="col") for text in heads))),
        element("tbody", map(_usage_row, usage)),
        class_="usage",
    )


def _usage_row(row: NamespaceUsage) -> Markup:
    shared = [f"{row.memory:,} GiB"] if row.memory else []
    shared += [f"{row.replicas:,} {plural('replica', row.replicas)}"] if row.replicas else []
    find = element(
        "button",
        "Show",
        type="button",
        class_="link",
        data_search=f"{row.namespace}/",
        aria_label=f"Show the nodes of {row.namespace}",
    )
    cells = (f"{row.gpus:,}", ", ".join(shared) or "–", f"{row.pods:,}", f"{len(row.nodes):,}")
    return element(
        "tr",
        element("th", name(row.namespace), scope="row"),
        (element("td", text) for text in cells),
        element("td", find),
    )
