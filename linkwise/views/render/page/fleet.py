"""The map of all nodes, which a script draws, and the totals around it."""

from collections.abc import Sequence

from linkwise.topology.table import table_of
from linkwise.views.analysis.fleet import FleetNode, NamespaceUsage, nodes_by_free_gpus
from linkwise.views.output.words import plural
from linkwise.views.render.page.drawing import drawing_of
from linkwise.views.render.page.markup import Markup, element, folded, name, together
from linkwise.views.render.page.occupancy import empty_view
from linkwise.views.render.page.rows import fleet_data

NAMESPACES = 12
"""The number of namespaces that are not folded."""


def fleet_section(nodes: Sequence[FleetNode]) -> Markup:
    """Return the place of the map, with its data."""
    drawings: dict[object, tuple[int, Markup]] = {}
    numbers = [_drawn(node, drawings) for node in nodes]
    return together(
        element("h2", "Nodes"),
        element("noscript", element("p", "The map needs JavaScript.", class_="note")),
        element("div", "", id="fleet"),
        element("dialog", "", id="node"),
        (element("template", drawing, id=f"d{number}") for number, drawing in drawings.values()),
        element(
            "script",
            fleet_data(nodes, numbers),
            id="fleet-data",
            type="application/gzip",
        ),
    )


def _drawn(node: FleetNode, drawings: dict[object, tuple[int, Markup]]) -> int | None:
    """Return the number of a node's drawing; equal machines share one."""
    machine = node.node.machine
    if machine is None or not node.node.cards:
        return None
    shared = node.node.replicas or node.node.mode.shares_memory
    key = id(table_of(machine)), bool(shared), node.node.machine_known
    if key not in drawings:
        drawings[key] = len(drawings), drawing_of(empty_view(node.node), machine)
    return drawings[key][0]


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
