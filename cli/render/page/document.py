"""The whole page."""

from collections.abc import Sequence

from cli.analysis.fleet import fleet_of
from cli.analysis.simulation import PodResult, Simulation
from cli.render.output import sentence
from cli.render.page.admission import admission_sections, is_denied, names
from cli.render.page.caption import Caption, caption
from cli.render.page.fleet import fleet_section
from cli.render.page.legend import legend
from cli.render.page.markup import Markup, element, together
from cli.render.page.nodes import node_sections
from cli.render.page.occupancy import NodeView, Unit, nodes_of, units_of
from cli.render.page.shell import page
from cli.render.page.units import unit_sections


def render(simulation: Simulation, given: Caption) -> str:
    """Return a page that shows what happened; it needs no network.

    Args:
        simulation: What happened.
        given: Where the page comes from.
    """
    units = units_of(simulation)
    views = nodes_of(simulation, units)
    left = [pod for pod in simulation.pods if _asks_for_no_gpu(pod)]
    header = element(
        "header",
        element("h1", summary(simulation)),
        element("p", _cluster(simulation), class_="quiet"),
        caption(given),
        element("p", element("a", "What is denied, and how to mend it", href="#denied"))
        if any(map(is_denied, simulation.pods))
        else None,
    )
    return page(
        given.title,
        header,
        unit_sections(units),
        _map(simulation, units),
        _nodes(views),
        admission_sections(simulation.pods),
        _given_by_others([pod for pod in simulation.pods if _asks_others(pod)]),
        _left_alone(left) if left else None,
    )


def _map(simulation: Simulation, units: Sequence[Unit]) -> Markup:
    """Return the cluster afterwards, what was placed marked; None where it has no GPUs."""
    new = frozenset(one.pod.metadata.uid for unit in units for one in unit.result.members)
    nodes = fleet_of(simulation.after.nodes, new)
    if not nodes:
        return element("p", "No node of this cluster has GPUs.", class_="note")
    return fleet_section(nodes, placed=True)


def summary(simulation: Simulation) -> str:
    """Say in one line what became of the pods.

    Those that ask for no GPU are counted, too: somebody looks for every pod of the files.
    """
    pods = simulation.pods
    denied = sum(map(is_denied, pods))
    placed = sum(pod.node is not None for pod in pods)
    left = sum(map(_asks_for_no_gpu, pods))
    others = sum(map(_asks_others, pods))
    waiting = len(pods) - denied - placed - left - others
    words = [f"{placed} of {len(pods)} pod{'s' * (len(pods) != 1)} placed"]
    words += [f"{waiting} wait{'s' * (waiting == 1)}"] if waiting else []
    words += [f"{denied} denied"] if denied else []
    words += [f"{others} with GPUs that others give out"] if others else []
    words += [f"{left} without GPUs"] if left else []
    return ", ".join(words)


def _asks_for_no_gpu(pod: PodResult) -> bool:
    return not (is_denied(pod) or pod.applicant.is_placed or pod.applicant.others)


def _asks_others(pod: PodResult) -> bool:
    return not is_denied(pod) and pod.applicant.others is not None


def _cluster(simulation: Simulation) -> str:
    before, after = simulation.before.nodes, simulation.after.nodes
    gpus = sum(len(ledger.node.cards) for ledger in after)
    free = [sum(one.gpus_free for one in nodes) for nodes in (before, after)]
    return (
        f"{len(after)} node{'s' * (len(after) != 1)} with {gpus} GPUs:"
        f" {free[0]} wholly free before, {free[1]} after"
    )


def _given_by_others(pods: Sequence[PodResult]) -> Markup | None:
    alike: dict[str, list[PodResult]] = {}
    for pod in pods:
        alike.setdefault(pod.reason or "", []).append(pod)
    if not alike:
        return None
    told = [element("p", names(group), ": ", sentence(reason)) for reason, group in alike.items()]
    return together(element("h2", "GPUs that others give out"), told)


def _left_alone(pods: Sequence[PodResult]) -> Markup:
    return together(
        element("h2", "Without GPUs"),
        element("p", "Left to kube-scheduler: ", names(pods), "."),
    )


def _nodes(views: Sequence[NodeView]) -> Markup | None:
    if not views:
        return None
    title = "Nodes on which something was placed"
    return together(element("h2", title), legend(views), node_sections(views))
