"""Choose k of the free GPUs: three modes, one rule for ties.

A mode is a list of keys, most important first. Candidates are the k-sets of free GPUs that hold the
required ones, in ascending order of indices; each key keeps the candidates with its largest value,
and the first of equal candidates is chosen.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from linkwise.topology.compat import first_optimal_set
from linkwise.topology.machine import gpus_of
from linkwise.topology.per_table import per_table
from linkwise.topology.subsets import Floats, Ints, sets_within
from linkwise.topology.table import Table

MAX_CHOSEN = 1 << 16
"""Maximum number of cached choices of all machines: 25 MB. One with 8 GPUs has some thousand."""


class ChoiceMode(StrEnum):
    """The objective of a choice."""

    FAST = "fast"
    """The most bandwidth for this job."""
    KEEP = "keep"
    """Bandwidth now against the good sets of two and four that it would break."""
    COMPAT = "compat"
    """The intention of NVIDIA\'s best-effort policy, without its two defects."""


@dataclass(frozen=True, slots=True)
class ChoiceRequest:
    """A request for a choice."""

    free: int
    """Mask of the GPUs that may be taken."""
    k: int
    """Number of GPUs to take, at least 1."""
    required: int = 0
    """Mask of GPUs that the set must hold."""
    mode: ChoiceMode = ChoiceMode.KEEP
    multi_node: bool = False
    """The job spans nodes, so that being near a NIC counts."""
    linked: bool = False
    """Only sets that NVLink alone connects."""

    def problem(self) -> str | None:
        """Return why no set can satisfy this, or None."""
        if self.k < 1:
            return f"asked for {self.k} GPUs; the least is 1"
        if self.required & ~self.free:
            taken = ", ".join(map(str, gpus_of(self.required & ~self.free)))
            return f"required, but not free: GPU {taken}"
        if self.required.bit_count() > self.k:
            return f"asked for {self.k}, fewer than the {self.required.bit_count()} GPUs required"
        if self.free.bit_count() < self.k:
            return f"asked for {self.k}, more than the {self.free.bit_count()} GPUs free"
        return None


def choose(table: Table, ask: ChoiceRequest) -> int | None:
    """Return the mask of the GPUs to take, or None where no set satisfies the ask.

    Cost: 0.3 µs once decided for this free mask; at first up to 5 ms for 16 GPUs with prepared
    tables, 0.1 ms for 8.
    """
    # A tuple has a faster hash than a `ChoiceRequest`.
    fields = (ask.free, ask.k, ask.required, ask.mode, ask.multi_node, ask.linked)
    return _choose(table, fields)


def ranked(table: Table, ask: ChoiceRequest) -> Iterator[int]:
    """Yield every candidate, best first, ties by ascending indices."""
    sets = candidates(table, ask)
    keys = [key.of(table, ask, sets) for key in _KEYS[ask.mode]]
    order = np.lexsort((np.arange(len(sets)), *(-key for key in reversed(keys))))
    yield from sets[order].tolist()


def advantage(table: Table, ask: ChoiceRequest, chosen: int, other: int) -> str:
    """Return the first key by which the chosen set precedes another candidate, as a clause."""
    both = np.array([chosen, other])
    for key in _KEYS[ask.mode]:
        one, two = key.of(table, ask, both).tolist()
        if one > two:
            return key.words
        if one < two:
            break
    if ask.mode is ChoiceMode.COMPAT:
        return "NVIDIA's policy meets it first"
    return "its indices are lower"


def candidates(table: Table, ask: ChoiceRequest) -> Ints:
    """Return the masks of the sets to choose from, by ascending tuple of indices."""
    if ask.problem() is not None:
        return np.zeros(0, dtype=np.int64)
    within = sets_within(ask.free, table.n, ask.k, ask.required)
    sets: Ints = within[table.allowed[within & ~ask.required]]
    return sets[table.linked[sets]] if ask.linked else sets


@per_table(MAX_CHOSEN)
def _choose(table: Table, fields: tuple[int, int, int, ChoiceMode, bool, bool]) -> int | None:
    ask = ChoiceRequest(*fields)
    sets = candidates(table, ask)
    if not len(sets):
        return None
    if ask.mode is ChoiceMode.COMPAT:
        # NVIDIA's policy takes the first of its equal optima, in an order of its own. Only if this
        # is no candidate, since it is not linked or not allowed, do the keys choose.
        intended = first_optimal_set(table, ask.free, ask.k, ask.required)
        if intended in sets:
            return intended
    # One key after the other, and not one sort by all: mostly the first keys decide, and the tables
    # that later keys read (V_k, partitions) are built when they are first used.
    for key in _KEYS[ask.mode]:
        if len(sets) == 1:
            break
        value = key.of(table, ask, sets)
        sets = sets[value == value.max()]
    # The sets are still in ascending order of indices, which is the rule for ties.
    return int(sets[0])


def _micro(gigabytes: Floats) -> Ints:
    """Return bandwidths rounded to 1e-6 GB/s, as whole numbers that compare exactly."""
    # Equal sums may differ in their last bits. As floats, these bits would decide, and a tie would
    # never reach the next key.
    return np.rint(gigabytes * 1e6).astype(np.int64)


def _a(table: Table, _ask: ChoiceRequest, sets: Ints) -> Ints:
    """A(S)."""
    return _micro(table.a[sets])


def _kept(table: Table, ask: ChoiceRequest, sets: Ints) -> Ints:
    """A(S) + 0.25·(V_2 + V_4)(F−S)."""
    # The sizes of later jobs are unknown: sets of two and four stand for them.
    rest = ask.free & ~sets
    return _micro(table.a[sets] + 0.25 * (table.v(2)[rest] + table.v(4)[rest]))


def _a_left(table: Table, ask: ChoiceRequest, sets: Ints) -> Ints:
    """A(F−S)."""
    return _micro(table.a[ask.free & ~sets])


def _again(table: Table, ask: ChoiceRequest, sets: Ints) -> Ints:
    """V_k(F−S): how well the same job would fit once more."""
    return _micro(table.v(ask.k)[ask.free & ~sets])


def _partitioned(table: Table, ask: ChoiceRequest, sets: Ints) -> Ints:
    """W(S) + W*(F−S)."""
    total: Ints = table.w[sets] + table.partition(ask.k)[ask.free & ~sets]
    return total


def _own_weight(table: Table, _ask: ChoiceRequest, sets: Ints) -> Ints:
    """W(S)."""
    return table.w[sets]


def _few_numa(table: Table, _ask: ChoiceRequest, sets: Ints) -> Ints:
    """Fewest NUMA nodes."""
    return -table.numa[sets]


def _near_nics(table: Table, ask: ChoiceRequest, sets: Ints) -> Ints:
    """Nearest NICs, when the job spans nodes."""
    return table.near[sets] * ask.multi_node


@dataclass(frozen=True, slots=True)
class _Key:
    """One key of a mode."""

    of: Callable[[Table, ChoiceRequest, Ints], Ints]
    """Its value for each of some sets; the largest is kept."""
    words: str
    """The words for a set that it prefers to another."""


_PARTITION = _Key(_partitioned, "with it the free GPUs divide best by NVIDIA's pair scores")
_FAST = (
    _Key(_a, "it is faster"),
    _Key(_again, "what it leaves free suits the same job better"),
    _PARTITION,
    _Key(_few_numa, "it touches fewer NUMA nodes"),
    _Key(_near_nics, "it is nearer to the NICs"),
)
_KEYS = {
    ChoiceMode.FAST: _FAST,
    ChoiceMode.KEEP: (
        _Key(_kept, "what it leaves free keeps better sets of two and four"),
        _Key(_a_left, "all that it leaves free is faster together"),
        *_FAST,
    ),
    ChoiceMode.COMPAT: (_PARTITION, _Key(_own_weight, "its own pair scores are higher")),
}
