"""The bandwidth of a unit as bars, beside the best possible one and the one in index order."""

from linkwise.cluster.requests.request import Family
from linkwise.planning.placement.bandwidth import UNDEFINED, Bandwidth
from linkwise.planning.placement.baselines import IndexOrder
from linkwise.planning.placement.messages import not_comparable
from linkwise.planning.placement.result import Plan
from linkwise.views.analysis.simulation import UnitResult
from linkwise.views.render.page.markup import Markup, element, name, together


def bandwidth(result: UnitResult, plan: Plan) -> Markup:
    """Return three bars with their numbers, or a sentence if there is nothing to compare."""
    planned = plan.bandwidth
    if planned.value is None:
        return element("p", _undefined(result, plan), class_="quiet")
    order, best = result.index_order, result.best_possible
    baseline = order.bandwidth if order else UNDEFINED
    known = [each for each in (planned, best, baseline) if each.value is not None]
    compared = [each for each in known if planned.is_comparable(each)]
    longest = max(each.value or 0 for each in compared) or 1

    def bar(kind: str, label: Markup, shown: Bandwidth) -> Markup:
        return _bar(kind, label, shown, longest if shown in compared else None)

    bars = (
        bar("chosen", element("span", f"Chosen{planned.uncounted}"), planned),
        bar(
            "best",
            _label(element("span", "Best possible, on the empty cluster"), planned, best),
            best,
        ),
        bar("order", _label(_order(order), planned, baseline), baseline),
    )
    return element(
        "div",
        element("p", "All-reduce bandwidth, modelled", class_="quiet small"),
        element("dl", bars, class_="bars"),
        _gain(planned, baseline) if baseline in compared else None,
    )


def _bar(kind: str, label: Markup, bandwidth: Bandwidth, longest: float | None) -> Markup:
    """Return a number with its bar; without a bar where it is compared with none (None)."""
    number = "–" if bandwidth.value is None else f"{bandwidth.value:.1f} GB/s"
    percent = 100 * bandwidth.value / longest if bandwidth.value and longest else 0
    length = element("i", class_=kind, style=f"width:{percent:.1f}%") if percent else None
    return together(element("dt", label, element("b", number)), element("dd", length))


def _label(text: Markup, planned: Bandwidth, baseline: Bandwidth) -> Markup:
    if baseline.value is None or planned.is_comparable(baseline):
        return text
    return element("span", text, f", {not_comparable(planned, baseline)}")


def _order(order: IndexOrder | None) -> Markup:
    if order is None:
        return element("span", "Index order: does not work here")
    taken = [(name(node), f" {' '.join(map(str, gpus))}") for node, gpus in order.gpus.items()]
    shown = [(", ", each) if number else each for number, each in enumerate(taken[:3])]
    more = f" and {len(taken) - 3} more" if len(taken) > 3 else None
    return element("span", "Index order: ", shown, more)


def _gain(planned: Bandwidth, baseline: Bandwidth) -> Markup | None:
    if not baseline.value:
        return None
    if models := planned.other_models(baseline):
        return element("p", f"Index order is {models}.", class_="gain")
    times = planned.times(baseline)
    if f"{times:.1f}" == "1.0":
        return element("p", "As fast as index order here.", class_="gain")
    return element("p", element("b", f"{times:.1f} ×"), " as fast as index order", class_="gain")


def _undefined(result: UnitResult, plan: Plan) -> str:
    if any(member.request.family is not Family.WHOLE for member in result.members):
        return "Bandwidth is modelled for whole GPUs that Linkwise chooses."
    if plan.bandwidth.sets_unknown:
        return "The bandwidth is not known: NVIDIA's plugin chooses the GPUs."
    nodes = [result.seen.ledger.nodes[node].node for node in plan.gpus]
    if not all(node.machine_known for node in nodes):
        return "No bandwidth is modelled: it is not known how these GPUs are linked."
    return "A single GPU has no bandwidth to compare."
