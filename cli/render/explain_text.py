"""What `explain` shows to people."""

from cli.analysis.explained import Explained, PodPlacement, UnitState
from cli.render.output import (
    BAD,
    DOUBT,
    GOOD,
    QUIET,
    Paint,
    cut,
    named,
    say,
    say_rest,
    sentence,
    table,
)
from cli.render.simulate_text import show_bandwidth
from scorer.placement.explain import explain_plan

_COLOURS = {
    UnitState.PLACED: GOOD,
    UnitState.FITS: DOUBT,
    UnitState.WAITS: BAD,
    UnitState.NEVER: BAD,
}


def show(one: Explained) -> None:
    """Write why a pod or a gang is where it is, or what keeps it, to standard output."""
    waits = one.state in {UnitState.WAITS, UnitState.NEVER}
    nodes = () if waits else dict.fromkeys(pod.node for pod in one.pods if pod.node)
    say(
        Paint(one.state.value, _COLOURS.get(one.state, QUIET), bold=True),
        one.kind,
        Paint(f"{one.namespace}/{one.name}", bold=True),
        *(
            ["on", named(list(nodes))]
            if nodes and one.state not in {UnitState.WAITS, UnitState.NEVER}
            else []
        ),
    )
    if one.reason is not None:
        say(" ", sentence(one.reason))
    for remedy in one.remedies:
        say("  help:", sentence(remedy))
    if one.state is UnitState.FITS:
        say("  It would go there now. If it still waits, see whether linkwise-scorer is ready.")
    show_bandwidth(one.bandwidth, one.best_possible, one.index_order)
    _show_waiting_best(one)
    _show_why(one)
    shown = cut(one.pods)
    table([["  POD", "NODE", "GPUS", "STATE"], *map(_row, shown)])
    say_rest(len(one.pods) - len(shown))


def _show_waiting_best(one: Explained) -> None:
    if one.bandwidth is None and one.best_possible is not None:
        best = f"  {one.best_possible:.1f} GB/s"
        say(best, Paint("the best that the empty cluster has", QUIET))


def _show_why(one: Explained) -> None:
    if one.changed is not None:
        say("  note:", sentence(one.changed))
    if one.plan is None or one.seen is None:
        return
    told = explain_plan(one.seen, one.plan)
    if one.changed is None:
        say("  why:", sentence(told.nodes))
    for node, gpus in told.gpus.items():
        chosen = " ".join(map(str, gpus.chosen.gpus)) if gpus.chosen else ""
        say(f"       {node}, GPUs {chosen}:", sentence(gpus.reason))
        if (second := gpus.runner_up) is not None and second.bandwidth is not None:
            taken = " ".join(map(str, second.gpus))
            say(f"       {second.bandwidth:.1f} GB/s", Paint(f"the runner-up, GPUs {taken}", QUIET))
    for note in told.notes:
        say("  note:", sentence(note))


def _row(pod: PodPlacement) -> list[str]:
    return [f"  {pod.name}", pod.node or "-", " ".join(map(str, pod.gpus)) or "-", pod.state]
