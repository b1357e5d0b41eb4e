"""Explain a choice of GPUs beside the alternatives."""

from dataclasses import dataclass

from linkwise.topology.choice import ChoiceRequest, advantage, candidates, choose, ranked
from linkwise.topology.machine import gpus_of, mask_of
from linkwise.topology.table import Table


@dataclass(frozen=True, slots=True)
class GPUSet:
    """A set of GPUs and how fast they talk."""

    gpus: tuple[int, ...]
    bandwidth: float | None
    """A [GB/s]; None for one GPU, for which A is not defined."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """A choice of GPUs on one machine, with everything it is compared to."""

    chosen: GPUSet | None
    """None where no set satisfies the ask."""
    reason: str
    """Why this set, or why none; one sentence."""
    best_possible: float | None
    """The largest A of so many GPUs on the empty machine [GB/s]; None for one GPU."""
    best_free: float | None
    """The largest A among the free GPUs [GB/s]; None for one GPU."""
    index_order: GPUSet | None
    """The set of the lowest free indices, required ones first."""
    runner_up: GPUSet | None
    """The next set by the objective that is no image of the choice under the machine's symmetry."""
    free_after: GPUSet | None
    """The GPUs that stay free, and A of all of them together."""
    exact: bool
    """A is solved exactly; else the bandwidths of large direct meshes are upper bounds."""


def explain(table: Table, ask: ChoiceRequest) -> Explanation:
    """Choose and explain. Cost: the choice, and milliseconds to rank every candidate."""
    chosen = choose(table, ask)
    if chosen is None:
        reason = ask.problem() or "NVLink alone connects no such set of free GPUs"
        return Explanation(None, reason, None, None, None, None, None, table.exact)
    sets = candidates(table, ask)
    several = ask.k > 1
    best_free = round(float(table.a[sets].max()), 6) if several else None
    best_possible = table.best_possible(ask.k) if several else None
    alike = table.images(chosen)
    runner_up = next((s for s in ranked(table, ask) if not alike[s]), None)
    return Explanation(
        chosen=_set(table, chosen),
        reason=_reason(table, ask, chosen, runner_up),
        best_possible=best_possible,
        best_free=best_free,
        index_order=_set(table, index_order(ask)),
        runner_up=None if runner_up is None else _set(table, runner_up),
        free_after=_set(table, ask.free & ~chosen) if ask.free & ~chosen else None,
        exact=table.exact,
    )


def index_order(ask: ChoiceRequest) -> int:
    """Return the mask of the required GPUs and the lowest free indices."""
    others = gpus_of(ask.free & ~ask.required)
    return ask.required | mask_of(others[: ask.k - ask.required.bit_count()])


def _set(table: Table, mask: int) -> GPUSet:
    gpus = gpus_of(mask)
    return GPUSet(gpus, table.bandwidth(mask) if len(gpus) > 1 else None)


def _reason(table: Table, ask: ChoiceRequest, chosen: int, runner_up: int | None) -> str:
    sets = candidates(table, ask)
    a, best_free = table.bandwidth(chosen), max(table.bandwidth(s) for s in sets.tolist())
    speed = f"{a:.1f} GB/s" if ask.k > 1 else "a single GPU"
    if len(sets) == 1:
        return f"{speed}; there is no other such set"
    if runner_up is None:
        return f"{speed}; every other such set is the same but for numbering"
    words = advantage(table, ask, chosen, runner_up)
    if a < best_free:
        return (
            f"{speed} rather than the {best_free:.1f} GB/s that the free GPUs could give: {words}"
        )
    if table.bandwidth(runner_up) < a:
        return f"{speed}; the next best kind of set gives {table.bandwidth(runner_up):.1f} GB/s"
    return f"{speed}; taken before the runner-up because {words}"
