"""The whole page."""

from collections.abc import Sequence

from cli.page.admission import admission_sections, is_denied, names
from cli.page.drawing import DEFINITIONS
from cli.page.legend import legend
from cli.page.markup import Markup, element, together
from cli.page.nodes import node_sections
from cli.page.occupancy import NodeView, nodes_of, units_of
from cli.page.style import STYLE
from cli.page.units import unit_sections
from cli.simulation import PodResult, Simulation

NOTHING_ELSE = "default-src 'none'; style-src 'unsafe-inline'"
"""The browser itself keeps the page from loading or running anything."""


def render(simulation: Simulation, title: str) -> str:
    """Return a page that shows what happened; it needs no network and runs no script.

    Args:
        simulation: What happened.
        title: What stands above it, such as the command.
    """
    units = units_of(simulation)
    views = nodes_of(simulation, units)
    left = [pod for pod in simulation.pods if _asks_for_no_gpu(pod)]
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=NOTHING_ELSE),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", title),
        element("style", Markup(STYLE)),
    )
    body = element(
        "main",
        element(
            "header",
            element("p", title, class_="quiet small"),
            element("h1", summary(simulation)),
            element("p", _cluster(simulation), class_="quiet"),
            element("p", element("a", "What is denied, and how to mend it", href="#denied"))
            if any(map(is_denied, simulation.pods))
            else None,
        ),
        unit_sections(units),
        _nodes(views),
        admission_sections(simulation.pods),
        _left_alone(left) if left else None,
    )
    return (
        f"<!doctype html>\n{element('html', head, element('body', DEFINITIONS, body), lang='en')}\n"
    )


def summary(simulation: Simulation) -> str:
    """Say in one line what became of the pods.

    Those that ask for no GPU are counted, too: somebody looks for every pod of the files.
    """
    pods = simulation.pods
    denied = sum(map(is_denied, pods))
    placed = sum(pod.node is not None for pod in pods)
    left = sum(map(_asks_for_no_gpu, pods))
    waiting = len(pods) - denied - placed - left
    words = [f"{placed} of {len(pods)} pod{'s' * (len(pods) != 1)} placed"]
    words += [f"{waiting} wait{'s' * (waiting == 1)}"] if waiting else []
    words += [f"{denied} denied"] if denied else []
    words += [f"{left} without GPUs"] if left else []
    return ", ".join(words)


def _asks_for_no_gpu(pod: PodResult) -> bool:
    return not is_denied(pod) and pod.applicant.outcome.request.family is None


def _cluster(simulation: Simulation) -> str:
    before, after = simulation.before.nodes, simulation.after.nodes
    gpus = sum(len(ledger.node.cards) for ledger in after)
    free = [sum(one.gpus_free for one in nodes) for nodes in (before, after)]
    return (
        f"{len(after)} node{'s' * (len(after) != 1)} with {gpus} GPUs:"
        f" {free[0]} wholly free before, {free[1]} after"
    )


def _left_alone(pods: Sequence[PodResult]) -> Markup:
    return together(
        element("h2", "Without GPUs"),
        element("p", "Left to kube-scheduler: ", names(pods), "."),
    )


def _nodes(views: Sequence[NodeView]) -> Markup | None:
    if not views:
        return element("p", "No node of this cluster has GPUs.", class_="note")
    return together(element("h2", "Nodes"), legend(views), node_sections(views))
