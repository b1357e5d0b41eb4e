"""The page of `linkwise inspect -o html`: a cluster as it is now."""

from collections.abc import Sequence

from cli.analysis.fleet import FleetNode, Usage
from cli.analysis.pending import PendingWork
from cli.render.output import sentence
from cli.render.page.caption import Caption, caption
from cli.render.page.fleet import fleet_section, namespaces, pieces, totals
from cli.render.page.markup import Markup, element, folded, name, together
from cli.render.page.shell import page
from cli.render.page.units import asked

SHOWN = 20
"""More than these that wait are folded."""


def render_fleet(
    nodes: Sequence[FleetNode],
    usage: Sequence[Usage],
    waiting: Sequence[PendingWork],
    given: Caption,
) -> str:
    """Return a page that shows who has which GPU, and who waits; it needs no network.

    Args:
        nodes: Every node with GPUs.
        usage: What each namespace holds.
        waiting: What has no GPUs yet.
        given: Where the page comes from.
    """
    head = element(
        "header",
        element("h1", _summary(nodes, waiting)),
        caption(given),
    )
    return page(
        given.title,
        head,
        totals(nodes),
        fleet_section(nodes, placed=False) if nodes else None,
        element("div", _part(namespaces(usage)), _part(pieces(nodes)), class_="parts"),
        _waiting(waiting),
    )


def _part(section: Markup | None) -> Markup | None:
    return element("section", section) if section else None


def _summary(nodes: Sequence[FleetNode], waiting: Sequence[PendingWork]) -> str:
    if not nodes:
        return "No node of this cluster has GPUs"
    gpus, free = sum(len(one.states) for one in nodes), sum(one.free for one in nodes)
    words = f"{free:,} of {gpus:,} GPUs free"
    gangs = sum(one.is_gang for one in waiting)
    pods = len(waiting) - gangs
    waits = [f"{gangs:,} gang{'s' * (gangs != 1)}"] if gangs else []
    waits += [f"{pods:,} pod{'s' * (pods != 1)}"] if pods else []
    return f"{words}, {' and '.join(waits)} waiting" if waits else words


def _waiting(waiting: Sequence[PendingWork]) -> Markup | None:
    if not waiting:
        return None
    rows = [_row(one) for one in waiting]
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


def _row(one: PendingWork) -> Markup:
    size = len(one.requests)
    asks = " or ".join(dict.fromkeys(map(asked, one.requests)))
    kind = f"gang, {size} waiting, {asks} each" if one.is_gang else f"pod, {asks}"
    since = f" · since {one.since}" if one.since else ""
    head = element(
        "div",
        element("h3", name(one.name)),
        element("span", kind, " · namespace ", name(one.namespace), since, class_="quiet small"),
        element("span", "never fits" if one.never else "waits", class_="status bad"),
        class_="head",
    )
    return element("li", head, element("p", sentence(one.reason), class_="reason"))
