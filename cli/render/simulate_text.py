"""What `linkwise simulate` shows to people."""

from collections.abc import Sequence

from cli.analysis.simulation import PodResult, Simulation, UnitResult, notes_of
from cli.analysis.suggestions import never_helped
from cli.render.output import (
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
from cluster.keys import NVIDIA_GPU_SHARED
from cluster.node import Mode
from cluster.node_ledger import NodeLedger
from cluster.request import Family
from scorer.placement.baselines import IndexOrder
from scorer.placement.explain import explain_plan
from webhook.outcome import Verdict

_NONE, _OTHERS = "without GPUs", "with GPUs that others give out"
"""What is said of pods for which no place is looked for."""


def show(simulation: Simulation) -> None:
    """Write what happens to standard output, most important first."""
    placed = [gang for gang in simulation.gangs if gang.plan is not None]
    waiting = [gang for gang in simulation.gangs if gang.plan is None]
    for gangs in ([] if is_quiet() else placed, waiting):
        for gang in cut(gangs):
            _show_unit(gang)
        _say_rest(gangs)
    denied = [p for p in simulation.pods if p.applicant.outcome.verdict is Verdict.DENIED]
    for pod in cut(denied):
        _show_denied(pod)
    _say_rest(denied)
    if is_quiet():
        return
    _show_others(simulation)
    _show_nodes(simulation)
    say(_sum(simulation))


def _say_rest(shown: Sequence[object]) -> None:
    left = len(shown) - len(cut(shown))
    say_rest(left)
    if left:
        say()


def _sum(simulation: Simulation) -> str:
    """Return how all of it went, in one line."""
    counts = [(_fate(pod), pod) for pod in simulation.pods]
    told = [
        f"{number} {fate}"
        for fate in ("placed", "waiting", "never placed", "denied", _OTHERS, _NONE)
        if (number := sum(one == fate for one, _ in counts))
    ]
    plural = "s" if len(counts) != 1 else ""
    return f"{len(counts)} pod{plural}: {', '.join(told)}"


def _fate(pod: PodResult) -> str:
    outcome = pod.applicant.outcome
    if outcome.verdict is Verdict.DENIED:
        return "denied"
    if not pod.applicant.is_placed:
        return _OTHERS if pod.applicant.others else _NONE
    if pod.node:
        return "placed"
    return "never placed" if pod.unit and pod.unit.never else "waiting"


def _show_unit(gang: UnitResult) -> None:
    kind = "gang" if gang.is_gang else "pod"
    name = Paint(f"{gang.namespace}/{gang.name}", bold=True)
    if gang.plan is None:
        never = gang.never
        say(Paint("never" if never else "waits", BAD, bold=True), kind, name)
        say(" ", sentence(gang.reason or ""))
        if never:
            say("  help:", sentence(never_helped(gang.seen, gang.members)))
        say()
        return
    say(Paint("placed", GOOD, bold=True), kind, name, "on", named(list(gang.plan.gpus)))
    show_bandwidth(gang.plan.bandwidth, gang.best_possible, gang.index_order)
    told = explain_plan(gang.seen, gang.plan)
    say("  why:", sentence(told.nodes))
    for node, one in list(told.gpus.items())[:1]:
        gpus = " ".join(map(str, one.chosen.gpus)) if one.chosen else ""
        say(f"       {node}, GPUs {gpus}:", sentence(one.reason))
    for note in notes_of(gang):
        say("  note:", sentence(note))
    rows = [
        ["  " + p.member.name.partition("/")[2], p.node, _gpus(p.gpus, p.member.request.family)]
        for p in gang.plan.placements
    ]
    shown = cut(rows)
    table([["  POD", "NODE", "GPUS"], *shown] if gang.is_gang else shown)
    say_rest(len(rows) - len(shown))
    say()


def show_bandwidth(
    bandwidth: float | None, best_possible: float | None, order: IndexOrder | None
) -> None:
    """Show the modelled bandwidth beside what else could have been, where it is defined."""
    if bandwidth is None:
        return
    say(f"  {bandwidth:.1f} GB/s", Paint("modelled all-reduce bandwidth", QUIET))
    if best_possible is not None:
        say(f"  {best_possible:.1f} GB/s", Paint("the best that the empty cluster has", QUIET))
    if order is not None and order.bandwidth is not None:
        taken = named([f"{node}: {' '.join(map(str, g))}" for node, g in order.gpus.items()], 3)
        times = bandwidth / order.bandwidth if order.bandwidth else 0
        gain = f", {times:.1f} × less" if times > 1 else ""
        where = f" ({taken})" if taken else ""
        say(f"  {order.bandwidth:.1f} GB/s", Paint(f"in index order{where}{gain}", QUIET))


def _gpus(gpus: tuple[int, ...], family: Family | None) -> str:
    if family is Family.NVIDIA:
        return "chosen by NVIDIA's device plugin"
    return " ".join(map(str, gpus))


def _show_denied(pod: PodResult) -> None:
    metadata = pod.applicant.pod.metadata
    say(Paint("denied", BAD, bold=True), "pod", f"{pod.applicant.namespace}/{metadata.name}")
    for finding in pod.applicant.outcome.findings:
        say(" ", finding.code.value, finding.field, sentence(finding.message))
        say("   ", Paint("fix:", GOOD), sentence(finding.fix))
    say()


def _show_others(simulation: Simulation) -> None:
    without = [pod.applicant.pod.metadata.name for pod in simulation.pods if _fate(pod) == _NONE]
    if without:
        say("without GPUs, left to kube-scheduler:", named(without))
        say()
    alike: dict[str, list[str]] = {}
    for pod in simulation.pods:
        if _fate(pod) == _OTHERS:
            alike.setdefault(pod.reason or "", []).append(pod.applicant.pod.metadata.name)
    for reason, names in alike.items():
        say(Paint("not placed", bold=True), named(names))
        say(" ", sentence(reason))
        say()


def _show_nodes(simulation: Simulation) -> None:
    """Show what nodes have left; of many, those on which something was placed."""
    after = simulation.after.ledger.nodes
    nodes = sorted(simulation.before.nodes, key=lambda one: after[one.node.name] is one)
    shown = sorted(cut(nodes), key=lambda one: one.node.name)
    rows = [["NODE", "MODE", "FREE BEFORE", "AFTER"]]
    for before in shown:
        freed = (_free(node) for node in (before, after[before.node.name]))
        rows.append([before.node.name, before.node.mode.value, *freed])
    table(rows)
    say_rest(len(nodes) - len(shown))
    say()


def _free(node: NodeLedger) -> str:
    """Return what a node has left, in what it gives out."""
    cards = range(len(node.node.cards))
    if node.node.mode.shares_memory:
        total = sum(card.memory or 0 for card in node.node.cards)
        return f"{sum(node.memory_free(i) for i in cards)} of {total} GiB"
    if node.node.mode is Mode.TIMESLICE:
        left = sum(node.replicas_free(i) for i in cards)
        return f"{left} of {node.node.replicas * len(cards)} replicas"
    if node.replicas_counted and not cards:
        return f"{node.counted_free(NVIDIA_GPU_SHARED)} of {node.replicas_counted} replicas"
    return f"{node.gpus_free} of {len(cards)} GPUs"
