"""`linkwise inspect`: shows the GPUs of each node and the pods that hold them."""

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from typer import echo

from linkwise.cluster.account.node_ledger import NodeLedger
from linkwise.cluster.account.slots import free_domains, free_slots
from linkwise.manifest.value import InputError
from linkwise.views.analysis.inspection import InspectedNode, inspect_nodes
from linkwise.views.files.current_cluster import CurrentCluster
from linkwise.views.output.printer import Format, emit, say, warn, widely
from linkwise.views.render import inspect_gpushare, inspect_json, inspect_text, slots
from linkwise.views.render.page.caption import Caption


class Style(StrEnum):
    """The layouts of the table."""

    LINKWISE = "linkwise"
    GPUSHARE = "gpushare"


class NodeFilter(NamedTuple):
    """Selects nodes; by default all that have GPUs."""

    node: str | None = None
    """Only this one."""
    namespace: str | None = None
    """Only nodes on which pods of this namespace have GPUs."""


class View(NamedTuple):
    """The output format of `inspect`."""

    output: str = "table"
    """`table`, `wide`, `json`, `yaml` or `html`; the style changes the table alone."""
    style: Style = Style.LINKWISE
    detail: bool = False
    """Show every GPU of each node."""
    slots: bool = False
    """Show the free sets of GPUs instead of nodes."""


def show_inspection(
    current: CurrentCluster, selected: NodeFilter, view: View, caption: Caption
) -> int:
    """Show nodes and their GPUs; return the exit code.

    Args:
        current: The cluster.
        selected: The nodes to show.
        view: The output format.
        caption: The caption of a page.

    Raises:
        InputError: There is no such node, or it has no GPUs.
    """
    node, namespace = selected
    nodes = inspect_nodes(current.cluster, node)
    if node is not None and not nodes:
        here = node in current.cluster.ledger.nodes
        problem = f"node {node} has no GPUs" if here else f"there is no node {node}"
        raise InputError(f"{problem}. See linkwise inspect for those that have some.")
    if namespace is not None:
        nodes = tuple(inspected for inspected in nodes if namespace in inspected.namespaces)
    for warning in current.warnings:
        warn(warning)
    if view.slots:
        _show_slots(nodes, current.policy.policy.gangs.domains, view.output)
    elif view.output == "html":
        echo(_page(current, [inspected.ledger for inspected in nodes], caption), nl=False)
    elif view.output not in {"table", "wide"}:
        emit(inspect_json.document(nodes), Format(view.output))
    elif view.style is Style.GPUSHARE:
        for line in inspect_gpushare.lines(nodes, detail=view.detail):
            say(line)
    else:
        with widely(wide=view.output == "wide"):
            inspect_text.show(nodes, detail=view.detail)
    return 0


def _show_slots(nodes: Sequence[InspectedNode], domains: Sequence[str], output: str) -> None:
    ledgers = [inspected.ledger for inspected in nodes]
    found = slots.Slots(groups=free_slots(ledgers), domains=free_domains(ledgers, domains))
    if output in {"table", "wide"}:
        with widely(wide=output == "wide"):
            slots.show(found)
    else:
        emit(found, Format(output))


def _page(current: CurrentCluster, ledgers: Sequence[NodeLedger], caption: Caption) -> str:
    # These cost 0.1 s to import; only a page needs them.
    from linkwise.views.analysis.fleet import fleet_of, usage_of  # noqa: PLC0415
    from linkwise.views.analysis.pending import pending_units  # noqa: PLC0415
    from linkwise.views.analysis.planner_view import planner_view  # noqa: PLC0415
    from linkwise.views.render.page.inspection import inspection_page  # noqa: PLC0415

    pending = pending_units(planner_view(current, caption.clock))
    return inspection_page(fleet_of(ledgers), usage_of(ledgers), pending, caption)
