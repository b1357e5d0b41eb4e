"""The bandwidth of a unit as bars, beside the best possible one and the one in index order."""

from cli.analysis.simulation import UnitResult
from cli.render.page.markup import Markup, element, name, together
from cluster.request import Family
from scorer.placement.baselines import IndexOrder
from scorer.placement.result import Plan


def bandwidth(result: UnitResult, plan: Plan) -> Markup:
    """Return three bars with their numbers, or a sentence if there is nothing to compare."""
    if plan.bandwidth is None:
        return element("p", _undefined(result, plan), class_="quiet")
    order = result.index_order
    baseline = order.bandwidth if order else None
    longest = max(plan.bandwidth, result.best_possible or 0, baseline or 0) or 1
    bars = (
        _bar("chosen", element("span", _chosen(plan)), plan.bandwidth, longest),
        _bar(
            "best",
            element("span", "Best possible, on the empty cluster"),
            result.best_possible,
            longest,
        ),
        _bar("order", _order(order), baseline, longest),
    )
    return element(
        "div",
        element("p", "All-reduce bandwidth, modelled", class_="quiet small"),
        element("dl", bars, class_="bars"),
        _gain(plan.bandwidth, baseline),
    )


def _chosen(plan: Plan) -> str:
    """Return the label of the chosen bar."""
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
    shown = [(", ", each) if number else each for number, each in enumerate(taken[:3])]
    more = f" and {len(taken) - 3} more" if len(taken) > 3 else None
    return element("span", "Index order: ", shown, more)


def _gain(chosen: float, baseline: float | None) -> Markup | None:
    if not baseline:
        return None
    times = chosen / baseline
    if f"{times:.1f}" == "1.0":
        return element("p", "As fast as index order here.", class_="gain")
    return element("p", element("b", f"{times:.1f} ×"), " as fast as index order", class_="gain")


def _undefined(result: UnitResult, plan: Plan) -> str:
    if any(member.request.family is not Family.WHOLE for member in result.members):
        return "Bandwidth is modelled for whole GPUs that Linkwise chooses."
    nodes = [result.seen.ledger.nodes[node].node for node in plan.gpus]
    if not all(node.machine_known for node in nodes):
        return "No bandwidth is modelled: it is not known how these GPUs are linked."
    if len(nodes) > 1:
        return "One GPU on each node: only the network links them, and its bandwidth is not known."
    return "A single GPU has no bandwidth to compare."
