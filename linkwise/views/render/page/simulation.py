"""The page of `linkwise simulate -o html`."""

from collections.abc import Sequence

from linkwise.views.analysis.fleet import fleet_of
from linkwise.views.analysis.simulation import PodResult, PodState, Simulation, by_reason
from linkwise.views.output.printer import sentence
from linkwise.views.output.words import plural
from linkwise.views.render.page.admission import admission_sections, names
from linkwise.views.render.page.caption import Caption, caption_markup
from linkwise.views.render.page.fleet import fleet_section
from linkwise.views.render.page.legend import legend
from linkwise.views.render.page.markup import Markup, element, together
from linkwise.views.render.page.nodes import node_sections
from linkwise.views.render.page.occupancy import SimulatedNode, Unit, nodes_of, units_of
from linkwise.views.render.page.shell import page
from linkwise.views.render.page.unit_results import unit_sections


def simulation_page(simulation: Simulation, caption: Caption) -> str:
    """Return a page that shows a simulation; it needs no network.

    Args:
        simulation: The results.
        caption: The page's caption.
    """
    units = units_of(simulation)
    denied = simulation.pods_in(PodState.DENIED)
    header = element(
        "header",
        element("h1", summary(simulation)),
        element("p", _cluster(simulation), class_="quiet"),
        caption_markup(caption),
        element("p", element("a", "What is denied, and how to correct it", href="#denied"))
        if denied
        else None,
    )
    return page(
        caption.title,
        header,
        unit_sections(units),
        _map(simulation, units),
        _nodes(nodes_of(simulation, units)),
        admission_sections(simulation.pods),
        _given_by_others(simulation.pods_in(PodState.OTHERS)),
        _without_gpus(simulation.pods_in(PodState.WITHOUT_GPUS)),
    )


def _map(simulation: Simulation, units: Sequence[Unit]) -> Markup:
    """Return the cluster afterwards, with the placed pods marked."""
    new = frozenset(member.pod.metadata.uid for unit in units for member in unit.result.members)
    nodes = fleet_of(simulation.after.nodes, new)
    if not nodes:
        return element("p", "No node of this cluster has GPUs.", class_="note")
    return fleet_section(nodes)


def summary(simulation: Simulation) -> str:
    """Return the results in one line; it counts all pods of the files."""
    count = {state: len(simulation.pods_in(state)) for state in PodState}
    total, waiting = len(simulation.pods), count[PodState.WAITING] + count[PodState.NEVER]
    words = [f"{count[PodState.PLACED]:,} of {total:,} {plural('pod', total)} placed"]
    words += [f"{waiting:,} wait{'s' * (waiting == 1)}"] if waiting else []
    words += [
        f"{count[state]:,} {state}"
        for state in (PodState.DENIED, PodState.OTHERS, PodState.WITHOUT_GPUS)
        if count[state]
    ]
    return ", ".join(words)


def _cluster(simulation: Simulation) -> str:
    before, after = simulation.before.nodes, simulation.after.nodes
    gpus = sum(len(ledger.node.cards) for ledger in after)
    free = [sum(ledger.gpus_free for ledger in nodes) for nodes in (before, after)]
    return (
        f"{len(after):,} {plural('node', len(after))} with {gpus:,} {plural('GPU', gpus)}:"
        f" {free[0]:,} free before, {free[1]:,} after"
    )


def _given_by_others(pods: Sequence[PodResult]) -> Markup | None:
    if not pods:
        return None
    groups = by_reason(pods).items()
    shown = [element("p", names(group), ": ", sentence(reason)) for reason, group in groups]
    return together(element("h2", "GPUs of other systems"), shown)


def _without_gpus(pods: Sequence[PodResult]) -> Markup | None:
    if not pods:
        return None
    return together(
        element("h2", "Without GPUs"),
        element("p", "Left to kube-scheduler: ", names(pods), "."),
    )


def _nodes(nodes: Sequence[SimulatedNode]) -> Markup | None:
    if not nodes:
        return None
    title = "Nodes with placed pods"
    return together(element("h2", title), legend(nodes), node_sections(nodes))
