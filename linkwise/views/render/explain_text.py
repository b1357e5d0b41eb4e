"""The text of `linkwise explain`."""

from linkwise.planning.placement.explain import explain_plan
from linkwise.views.analysis.unit_explanation import PodPlacement, UnitExplanation, UnitState
from linkwise.views.output.printer import (
    BAD,
    GOOD,
    QUIET,
    WARNING,
    Paint,
    cut,
    named,
    say,
    say_rest,
    sentence,
    table,
)
from linkwise.views.output.words import gpus_text
from linkwise.views.render.preempted_text import show_preempted
from linkwise.views.render.simulate_text import show_bandwidth

_COLOURS = {
    UnitState.PLACED: GOOD,
    UnitState.FITS: WARNING,
    UnitState.WAITS: BAD,
    UnitState.NEVER: BAD,
}


def show(unit: UnitExplanation) -> None:
    """Write the explanation of a pod or a gang to standard output."""
    nodes = () if unit.is_waiting else dict.fromkeys(pod.node for pod in unit.pods if pod.node)
    say(
        Paint(unit.state.value, _colour(unit), bold=True),
        unit.kind,
        Paint(f"{unit.namespace}/{unit.name}", bold=True),
        *(["on", named(list(nodes))] if nodes else []),
    )
    if unit.reason is not None:
        say(" ", sentence(unit.reason))
    if unit.membership is not None:
        say("  note:", sentence(unit.membership))
    for node in unit.reserved:
        lacking = gpus_text(node.gpus)
        say("  note:", sentence(f"GPUs of {node.node} are reserved for what it lacks: {lacking}"))
    for gpus in filter(None, (unit.unhealthy, unit.unplanned)):
        say("  note:", sentence(f"it has {gpus}"))
    for note in filter(None, (unit.unprepared, unit.evicted)):
        say("  note:", sentence(note))
    show_preempted(unit.preempts, unit.preempts_others)
    for suggestion in unit.suggestions:
        say("  help:", sentence(suggestion))
    if unit.state is UnitState.FITS:
        hint = "" if unit.reason else " If it still waits, see whether linkwise-scorer is ready."
        say(f"  It would go there now.{hint}")
    show_bandwidth(unit.bandwidth, unit.best_possible, unit.index_order)
    if unit.bandwidth.value is None and unit.best_possible.value is not None:
        best = f"  {unit.best_possible.value:.1f} GB/s"
        say(best, Paint("the best that the empty cluster has", QUIET))
    _show_reasons(unit)
    shown = cut(unit.pods)
    table([["  POD", "NODE", "GPUS", "STATE"], *map(_row, shown)])
    say_rest(len(unit.pods) - len(shown))


def _colour(unit: UnitExplanation) -> str:
    return BAD if unit.unhealthy else _COLOURS.get(unit.state, QUIET)


def _show_reasons(unit: UnitExplanation) -> None:
    if unit.changed is not None:
        say("  note:", sentence(unit.changed))
    if unit.plan is None or unit.snapshot is None:
        return
    explanation = explain_plan(unit.snapshot, unit.plan)
    if unit.changed is None:
        say("  why:", sentence(explanation.nodes))
    for node, choice in explanation.gpus.items():
        chosen = " ".join(map(str, choice.chosen.gpus)) if choice.chosen else ""
        say(f"       {node}, GPUs {chosen}:", sentence(choice.reason))
        if (second := choice.runner_up) is not None and second.bandwidth is not None:
            gpus = " ".join(map(str, second.gpus))
            say(f"       {second.bandwidth:.1f} GB/s", Paint(f"the runner-up, GPUs {gpus}", QUIET))
    for note in explanation.notes:
        say("  note:", sentence(note))


def _row(pod: PodPlacement) -> list[str]:
    return [f"  {pod.name}", pod.node or "-", gpus_text(pod.gpus) or "-", pod.state]
