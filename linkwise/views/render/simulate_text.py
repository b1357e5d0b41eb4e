"""The text of `linkwise simulate`."""

from collections import Counter
from collections.abc import Sequence

from linkwise.cluster.account.node_ledger import NodeLedger
from linkwise.cluster.keys import NVIDIA_GPU, NVIDIA_GPU_SHARED
from linkwise.cluster.mode import NodeMode
from linkwise.planning.placement.bandwidth import Bandwidth
from linkwise.planning.placement.baselines import IndexOrder
from linkwise.planning.placement.explain import explain_plan
from linkwise.planning.placement.messages import not_comparable
from linkwise.views.analysis.simulation import (
    PodResult,
    PodState,
    Simulation,
    UnitResult,
    by_reason,
    unplaced_by_scheduler,
)
from linkwise.views.analysis.suggestions import suggested_change
from linkwise.views.output.printer import (
    BAD,
    GOOD,
    QUIET,
    Paint,
    cut,
    is_quiet,
    named,
    say,
    say_rest,
    sentence,
    table,
)
from linkwise.views.output.words import gpus_text, plural
from linkwise.views.render.preempted_text import show_preempted


def show(simulation: Simulation) -> None:
    """Write a simulation to standard output, most important first; quietly, only problems."""
    placed = [unit for unit in simulation.units if unit.plan is not None]
    waiting = [unit for unit in simulation.units if unit.plan is None]
    for units in ([] if is_quiet() else placed, waiting):
        for unit in cut(units):
            _show_unit(unit)
        _say_rest(units)
    denied = simulation.pods_in(PodState.DENIED)
    for pod in cut(denied):
        _show_denied(pod)
    _say_rest(denied)
    if is_quiet():
        return
    _show_unplaced(simulation)
    _show_nodes(simulation)
    say(_summary(simulation))


def _say_rest(items: Sequence[object]) -> None:
    left = len(items) - len(cut(items))
    say_rest(left)
    if left:
        say()


def _summary(simulation: Simulation) -> str:
    counts = Counter(pod.state for pod in simulation.pods)
    states = ", ".join(f"{counts[state]} {state}" for state in PodState if counts[state])
    total = len(simulation.pods)
    return f"{total} {plural('pod', total)}: {states}"


def _show_unit(unit: UnitResult) -> None:
    kind = "gang" if unit.is_gang else "pod"
    name = Paint(f"{unit.namespace}/{unit.name}", bold=True)
    if unit.plan is None:
        say(Paint("never" if unit.never else "waits", BAD, bold=True), kind, name)
        say(" ", sentence(unit.reason or ""))
        show_preempted(unit.preempts)
        if unit.never:
            say("  help:", sentence(suggested_change(unit.seen, unit.unit.least.members)))
        say()
        return
    say(Paint("placed", GOOD, bold=True), kind, name, "on", named(list(unit.plan.gpus)))
    show_bandwidth(unit.plan.bandwidth, unit.best_possible, unit.index_order)
    explanation = explain_plan(unit.seen, unit.plan)
    say("  why:", sentence(explanation.nodes))
    for node, choice in list(explanation.gpus.items())[:1]:
        gpus = " ".join(map(str, choice.chosen.gpus)) if choice.chosen else ""
        say(f"       {node}, GPUs {gpus}:", sentence(choice.reason))
    for note in unit.notes:
        say("  note:", sentence(note))
    rows = [
        ["  " + p.member.name.partition("/")[2], p.node, gpus_text(p.gpus)]
        for p in unit.plan.placements
    ]
    shown = cut(rows)
    table([["  POD", "NODE", "GPUS"], *shown] if unit.is_gang else shown)
    say_rest(len(rows) - len(shown))
    say()


def show_bandwidth(
    bandwidth: Bandwidth, best_possible: Bandwidth, order: IndexOrder | None
) -> None:
    """Write the modelled bandwidth with its two baselines, where it is defined."""
    if bandwidth.value is None:
        return
    modelled = f"modelled all-reduce bandwidth{bandwidth.uncounted}"
    say(f"  {bandwidth.value:.1f} GB/s", Paint(modelled, QUIET))
    if best_possible.value is not None:
        apart = _difference(bandwidth, best_possible)
        best = Paint(f"the best that the empty cluster has{apart}", QUIET)
        say(f"  {best_possible.value:.1f} GB/s", best)
    if order is not None and order.bandwidth.value is not None:
        taken = named([index_order_text(*pair) for pair in order.gpus.items()], 3)
        where = f" ({taken})" if taken else ""
        compared = _difference(bandwidth, order.bandwidth) or _gain(bandwidth, order.bandwidth)
        shown = Paint(f"in index order{where}{compared}", QUIET)
        say(f"  {order.bandwidth.value:.1f} GB/s", shown)


def index_order_text(node: str, gpus: tuple[int, ...]) -> str:
    """Return the GPUs of a node in words; only the node where NVIDIA's plugin chooses them."""
    return f"{node}: {' '.join(map(str, gpus))}" if gpus else node


def _difference(planned: Bandwidth, other: Bandwidth) -> str:
    return "" if planned.is_comparable(other) else f", {not_comparable(planned, other)}"


def _gain(planned: Bandwidth, baseline: Bandwidth) -> str:
    if models := planned.other_models(baseline):
        return f", {models}"
    times = planned.times(baseline)
    return f", {times:.1f} × less" if times > 1 else ""


def _show_denied(pod: PodResult) -> None:
    say(Paint("denied", BAD, bold=True), "pod", f"{pod.admitted.namespace}/{pod.name}")
    for finding in pod.admitted.outcome.findings:
        say(" ", finding.code.value, finding.field, sentence(finding.message))
        say("   ", Paint("fix:", GOOD), sentence(finding.fix))
    say()


def _show_unplaced(simulation: Simulation) -> None:
    """Write the pods that need no placement."""
    without = simulation.pods_in(PodState.WITHOUT_GPUS)
    for scheduler, pods in unplaced_by_scheduler(without).items():
        say(f"without GPUs, left to {scheduler}:", named([pod.name for pod in pods]))
        say()
    for reason, pods in by_reason(simulation.pods_in(PodState.OTHERS)).items():
        say(Paint("not placed", bold=True), named([pod.name for pod in pods]))
        say(" ", sentence(reason))
        say()


def _show_nodes(simulation: Simulation) -> None:
    """Write what nodes have left; of many, those on which pods were placed."""
    after = simulation.after.ledger.nodes
    nodes = sorted(simulation.before.nodes, key=lambda node: after[node.node.name] is node)
    shown = sorted(cut(nodes), key=lambda node: node.node.name)
    rows = [["NODE", "MODE", "FREE BEFORE", "AFTER"]]
    for before in shown:
        free = (_free(node) for node in (before, after[before.node.name]))
        rows.append([before.node.name, before.node.mode.value, *free])
    table(rows)
    say_rest(len(nodes) - len(shown))
    say()


def _free(node: NodeLedger) -> str:
    """Return what a node has left, in the unit of its mode."""
    cards = range(len(node.node.cards))
    if node.node.mode.shares_memory:
        total = sum(card.memory or 0 for card in node.node.cards)
        return f"{sum(node.memory_free(i) for i in cards)} of {total} GiB"
    if node.node.mode is NodeMode.TIMESLICE:
        left = sum(node.replicas_free(i) for i in cards)
        return f"{left} of {node.node.replicas * len(cards)} replicas"
    if parts := node.node.parts:
        return f"{node.counted_free(NVIDIA_GPU)} of {parts.words}"
    if node.replicas_counted and not cards:
        return f"{node.counted_free(NVIDIA_GPU_SHARED)} of {node.replicas_counted} replicas"
    return f"{node.gpus_free} of {len(cards)} {plural('GPU', len(cards))}"
