"""The text of a placement that `check` found for the pods of a template."""

from linkwise.cluster.allocations.gpus import Counted, Exact, GPUShare
from linkwise.cluster.keys import NVIDIA_GPU
from linkwise.cluster.whatif_api import FitResult, NodeLeft, PodFit
from linkwise.planning.placement.bandwidth import Bandwidth
from linkwise.planning.placement.messages import not_comparable
from linkwise.views.output.printer import BAD, GOOD, QUIET, Paint, say, sentence, table
from linkwise.views.output.words import gpus_text, plural
from linkwise.views.render.preempted_text import show_preempted


def show_fit(fit: FitResult) -> None:
    """Write whether the pods of a template fit now, on which nodes, and what these have left."""
    placed = [pod for pod in fit.pods if pod.node]
    if fit.fits:
        nodes = ", ".join(dict.fromkeys(str(pod.node) for pod in placed))
        say(" ", Paint("fits now", GOOD, bold=True), f"on {nodes}")
        _show_bandwidth(fit)
    else:
        none = "never fits, even if nothing else ran" if fit.never else "does not fit now"
        some = f"{len(placed)} of {len(fit.pods)} fit now" if placed else none
        say(" ", Paint(some, BAD, bold=True))
        say("   ", sentence(fit.reason or ""))
        show_preempted(fit.preempts or (), fit.preempts_others or 0)
    if fit.why:
        say("    why:", sentence(fit.why))
    for note in fit.notes:
        say("    note:", sentence(note))
    table([["    " + pod.name, str(pod.node), _gpus(pod)] for pod in placed])
    for node in (left for left in fit.nodes if left.gpus):
        say(f"    left on {node.name}:", _left(node))


def _show_bandwidth(fit: FitResult) -> None:
    if fit.bandwidth is None:
        return
    planned = Bandwidth(fit.bandwidth, fit.bandwidth_nodes, fit.bandwidth_note is not None)
    beside = ""
    if fit.best_possible is not None:
        best = Bandwidth(fit.best_possible, fit.best_possible_nodes)
        apart = "" if planned.is_comparable(best) else f", {not_comparable(planned, best)}"
        beside = f", {fit.best_possible:.1f} on the empty cluster{apart}"
    modelled = Paint(f"modelled all-reduce bandwidth{planned.uncounted}{beside}", QUIET)
    say("   ", f"{fit.bandwidth:.1f} GB/s", modelled)


def _gpus(pod: PodFit) -> str:
    if pod.count:
        return gpus_text(Counted(NVIDIA_GPU, pod.count))
    gpus = Exact(tuple(map(GPUShare, pod.gpus or ())))
    noun = plural("GPU", len(gpus)) + " " if gpus else ""
    return noun + gpus_text(gpus)


def _left(node: NodeLeft) -> str:
    """Return what a node has left, in the unit of its mode."""
    shared = (
        (node.memory_free_after, "GiB"),
        (node.core_free_after, "% of compute"),
        (node.replicas_free_after, "replicas"),
    )
    amounts = [f"{' '.join(map(str, free))} {unit}" for free, unit in shared if free is not None]
    if amounts:
        return f"{' and '.join(amounts)}, GPU by GPU"
    return f"{node.free_after} of {node.gpus} GPUs, of {node.free_before} that are free now"
