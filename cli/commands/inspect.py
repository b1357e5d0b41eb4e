"""`linkwise inspect`: who has which GPU."""

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from typer import echo

from cli.analysis.inspection import views
from cli.live.current import Current
from cli.render import inspect_gpushare, inspect_json, inspect_text
from cli.render.output import Format, emit, say, warn, widely
from cli.render.page.caption import Caption
from cluster.node_ledger import NodeLedger
from manifest.value import InputError


class Style(StrEnum):
    """How people are shown it."""

    LINKWISE = "linkwise"
    GPUSHARE = "gpushare"


class Wanted(NamedTuple):
    """Which nodes are shown: all that have GPUs, where nothing is said."""

    node: str | None = None
    """Only this one."""
    namespace: str | None = None
    """Only those of which this namespace's pods have GPUs."""


class View(NamedTuple):
    """How `inspect` answers."""

    output: str = "table"
    """`table`, `wide`, `json`, `yaml` or `html`; scripts get one document, whatever the style."""
    style: Style = Style.LINKWISE
    """Which table people are shown."""
    detail: bool = False
    """More of each node."""


def show_inspection(now: Current, wanted: Wanted, view: View, given: Caption) -> int:
    """Show who has which GPU; return the exit code.

    Args:
        now: The cluster.
        wanted: Which nodes.
        view: How to answer.
        given: Where a page comes from.

    Raises:
        InputError: There is no such node, or none with GPUs of that name.
    """
    node, namespace = wanted
    found = views(now.cluster, node)
    if node is not None and not found:
        here = node in now.cluster.ledger.nodes
        problem = f"node {node} has no GPUs" if here else f"there is no node {node}"
        raise InputError(f"{problem}. See linkwise inspect for those that have some.")
    if namespace is not None:
        found = tuple(view for view in found if namespace in view.namespaces)
    for warning in now.warnings:
        warn(warning)
    if view.output == "html":
        echo(_page(now, [one.ledger for one in found], given), nl=False)
    elif view.output not in {"table", "wide"}:
        emit(inspect_json.document(found), Format(view.output))
    elif view.style is Style.GPUSHARE:
        for line in inspect_gpushare.lines(found, detail=view.detail):
            say(line)
    else:
        with widely(wide=view.output == "wide"):
            inspect_text.show(found, detail=view.detail)
    return 0


def _page(now: Current, ledgers: Sequence[NodeLedger], given: Caption) -> str:
    # 0.1 s that only a page needs.
    from cli.analysis.fleet import fleet_of, usage_of  # noqa: PLC0415
    from cli.analysis.pending import pending_work  # noqa: PLC0415
    from cli.analysis.planner_view import planner_view  # noqa: PLC0415
    from cli.render.page.inspection import render_fleet  # noqa: PLC0415

    waiting = pending_work(planner_view(now, given.clock))
    return render_fleet(fleet_of(ledgers), usage_of(ledgers), waiting, given)
