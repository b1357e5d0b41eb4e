"""The page of `linkwise inspect -o html`."""

from collections.abc import Sequence

from linkwise.views.analysis.fleet import FleetNode, NamespaceUsage
from linkwise.views.analysis.pending import PendingUnit
from linkwise.views.output.printer import sentence
from linkwise.views.output.words import plural
from linkwise.views.render.page.caption import Caption, caption_markup
from linkwise.views.render.page.fleet import fleet_section, free_gpus_chart, namespace_table, totals
from linkwise.views.render.page.markup import Markup, element, folded, name, together
from linkwise.views.render.page.shell import page
from linkwise.views.render.page.unit_results import request_text

SHOWN = 20
"""The number of pending units that are not folded."""


def inspection_page(
    nodes: Sequence[FleetNode],
    usage: Sequence[NamespaceUsage],
    pending: Sequence[PendingUnit],
    caption: Caption,
) -> str:
    """Return a page that shows the holders of GPUs and the pending units; it needs no network.

    Args:
        nodes: All nodes with GPUs.
        usage: The usage of each namespace.
        pending: The units without GPUs.
        caption: The page's caption.
    """
    head = element(
        "header",
        element("h1", _summary(nodes, pending)),
        caption_markup(caption),
    )
    return page(
        caption.title,
        head,
        totals(nodes),
        fleet_section(nodes) if nodes else None,
        element(
            "div", _part(namespace_table(usage)), _part(free_gpus_chart(nodes)), class_="parts"
        ),
        _pending(pending),
    )


def _part(section: Markup | None) -> Markup | None:
    return element("section", section) if section else None


def _summary(nodes: Sequence[FleetNode], pending: Sequence[PendingUnit]) -> str:
    if not nodes:
        return "No node of this cluster has GPUs"
    gpus, free = sum(len(node.states) for node in nodes), sum(node.free for node in nodes)
    words = f"{free:,} of {gpus:,} GPUs free"
    gangs = sum(unit.is_gang for unit in pending)
    pods = len(pending) - gangs
    waits = [f"{gangs:,} {plural('gang', gangs)}"] if gangs else []
    waits += [f"{pods:,} {plural('pod', pods)}"] if pods else []
    return f"{words}, {' and '.join(waits)} waiting" if waits else words


def _pending(pending: Sequence[PendingUnit]) -> Markup | None:
    if not pending:
        return None
    rows = [_row(unit) for unit in pending]
    rest = rows[SHOWN:]
    return together(
        element("h2", "Waiting for GPUs", id="waiting"),
        element(
            "div",
            element("ul", rows[:SHOWN], class_="rows"),
            folded(f"{len(rest)} more", element("ul", rest, class_="rows")) if rest else None,
            class_="card",
        ),
    )


def _row(unit: PendingUnit) -> Markup:
    size = len(unit.requests)
    asks = " or ".join(dict.fromkeys(map(request_text, unit.requests)))
    kind = f"gang, {size} waiting, {asks} each" if unit.is_gang else f"pod, {asks}"
    since = f" · since {unit.since}" if unit.since else ""
    head = element(
        "div",
        element("h3", name(unit.name)),
        element("span", kind, " · namespace ", name(unit.namespace), since, class_="quiet small"),
        element("span", "never fits" if unit.never else "waits", class_="status bad"),
        class_="head",
    )
    return element("li", head, element("p", sentence(unit.reason), class_="reason"))
