"""How fast the members of a unit talk, beside the best there is and what luck would have given."""

from cli.analysis.simulation import UnitResult
from cli.render.page.markup import Markup, element, name, together
from cluster.request import Family
from scorer.placement.baselines import IndexOrder
from scorer.placement.result import Plan


def bandwidth(result: UnitResult, plan: Plan) -> Markup:
    """Return three bars with their numbers, or a sentence where there is nothing to compare."""
    if plan.bandwidth is None:
        return element("p", _undefined(result, plan), class_="quiet")
    order = result.index_order
    naive = order.bandwidth if order else None
    longest = max(plan.bandwidth, result.best_possible or 0, naive or 0) or 1
    bars = (
        _bar("chosen", element("span", _chosen(plan)), plan.bandwidth, longest),
        _bar(
            "best",
            element("span", "Best possible, on the empty cluster"),
            result.best_possible,
            longest,
        ),
        _bar("order", _order(order), naive, longest),
    )
    return element(
        "div",
        element("p", "All-reduce bandwidth, modelled", class_="quiet small"),
        element("dl", bars, class_="bars"),
        _gain(plan.bandwidth, naive),
    )


def _chosen(plan: Plan) -> str:
    """Say what the first bar shows; without the network it may exceed what one node gives."""
    return "Chosen, the network between nodes not counted" if plan.nic_unknown else "Chosen"


def _bar(kind: str, label: Markup, value: float | None, longest: float) -> Markup:
    number = "–" if value is None else f"{value:.1f} GB/s"
    length = element("i", class_=kind, style=f"width:{100 * (value or 0) / longest:.1f}%")
    return together(
        element("dt", label, element("b", number)), element("dd", length if value else None)
    )


def _order(order: IndexOrder | None) -> Markup:
    if order is None:
        return element("span", "Index order: does not work here")
    taken = [(name(node), f" {' '.join(map(str, gpus))}") for node, gpus in order.gpus.items()]
    shown = [(", ", one) if place else one for place, one in enumerate(taken[:3])]
    more = f" and {len(taken) - 3} more" if len(taken) > 3 else None
    return element("span", "Index order: ", shown, more)


def _gain(chosen: float, naive: float | None) -> Markup | None:
    if not naive:
        return None
    times = chosen / naive
    if f"{times:.1f}" == "1.0":
        return element("p", "As fast as index order here.", class_="gain")
    return element("p", element("b", f"{times:.1f} ×"), " as fast as index order", class_="gain")


def _undefined(result: UnitResult, plan: Plan) -> str:
    if any(member.request.family is not Family.WHOLE for member in result.members):
        return "Bandwidth is modelled for whole GPUs that Linkwise chooses."
    nodes = [result.seen.ledger.nodes[node].node for node in plan.gpus]
    if not all(node.machine_known for node in nodes):
        return "No bandwidth is modelled: nothing tells how these GPUs are linked."
    if len(nodes) > 1:
        return "One GPU on each node: only the network links them, and nobody tells its bandwidth."
    return "A single GPU talks to no other, so that there is no bandwidth to compare."
