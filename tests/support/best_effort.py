"""Compare `fast` with NVIDIA's best-effort policy on every 8-GPU machine of the catalogue.

`PYTHONPATH=tests python -m support.best_effort > docs/fast-against-best-effort.md` writes the page.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import mean

from linkwise.topology.catalogue import NAMES, entry
from linkwise.topology.choice import ChoiceMode, ChoiceRequest, choose
from linkwise.topology.machine import Machine, gpus_of, mask_of
from linkwise.topology.table import table_of

GPUS = 8

_PAGE = """# `fast` against NVIDIA's best-effort policy

Every set F of free GPUs of every {gpus}-GPU machine of the catalogue, and every size k with
2 ≤ k < |F|: A of the set that `fast` takes against A of the set that best-effort takes. `fast`
takes a set of the largest A, so it is never worse: the table says how often, and by how much, it is
better. With k = 1 there is no bandwidth, and with k = |F| no choice.

| machine | cases | better | worse | mean gain | largest gain | no valid set from best-effort |
|---|---|---|---|---|---|---|
{rows}

Gain: A(`fast`) / A(best-effort), the mean over the cases in which it is better. The last column
counts the cases in which best-effort returns a set with padding, fewer GPUs than asked for; they
count in no other column but the first. Every A is modelled, none is measured, and each case weighs
the same, however rare it is in a cluster. Where all GPUs are on one NVSwitch, no set is better than
another.

Best-effort here is a restatement of the policy of go-gpuallocator at 876e7b7, which NVIDIA's device
plugin uses: it walks every partition of F, padded to a multiple of k, keeps the first one with the
largest sum of pair scores, and returns the first set with the largest sum in it.

Written by `PYTHONPATH=tests python -m support.best_effort`; a test compares it with what is
computed.
"""


@dataclass(frozen=True, slots=True)
class Comparison:
    """What choosing with `fast` gains on one machine."""

    name: str
    cases: int
    gains: tuple[float, ...]
    """A(fast) / A(best-effort) of the cases in which it is more than 1."""
    worse: int
    padded: int
    """Cases in which best-effort returns fewer GPUs than asked for."""

    def row(self) -> str:
        """Return the machine's row of the table, in Markdown."""
        gains = [f"{mean(self.gains):.2f}×", f"{max(self.gains):.2f}×"] if self.gains else ["–"] * 2
        cells = [self.name, self.cases, len(self.gains), self.worse, *gains, self.padded]
        return f"| {' | '.join(map(str, cells))} |"


def comparisons() -> list[Comparison]:
    """Compare both policies on every machine of the catalogue that has so many GPUs."""
    return [compare(name) for name in NAMES if entry(name).machine.n == GPUS]


def page(compared: list[Comparison]) -> str:
    """Return the page of the documentation, in Markdown."""
    return _PAGE.format(gpus=GPUS, rows="\n".join(one.row() for one in compared))


def compare(name: str) -> Comparison:
    """Compare both policies in every case of a machine of the catalogue."""
    machine = entry(name).machine
    table = table_of(machine)
    weight = pair_scores(machine)
    cases, gains, worse, padded = 0, [], 0, 0
    for free in range(1 << machine.n):
        for k in range(2, free.bit_count()):
            cases += 1
            theirs = best_effort(weight, gpus_of(free), k)
            if len(theirs) < k:
                padded += 1
                continue
            ours = choose(table, ChoiceRequest(free, k, mode=ChoiceMode.FAST))
            a, b = table.bandwidth(ours or 0), table.bandwidth(mask_of(theirs))
            worse += a < b
            gains += [a / b] if a > b else []
    return Comparison(name, cases, tuple(gains), worse, padded)


def pair_scores(machine: Machine) -> list[list[int]]:
    """Return NVIDIA's score of each pair: its PCIe level, and 100 for each NVLink."""
    return [
        [int(level) + 100 * count for level, count in zip(*rows, strict=True)]
        for rows in zip(machine.levels, machine.links, strict=True)
    ]


def best_effort(
    weight: Sequence[Sequence[int]], free: Sequence[int], k: int, required: Sequence[int] = ()
) -> tuple[int, ...]:
    """Return the set that best-effort returns: with padding, fewer than k GPUs; none, no GPU.

    Args:
        weight: Score of each pair.
        free: The free GPUs, ascending.
        k: How many are asked for, at least 2.
        required: GPUs that the set must hold.
    """
    must = set(required)

    def score(group: tuple[int, ...]) -> int:
        return sum(weight[i][j] for i, j in combinations(group, 2))

    allowed = (
        partition
        for partition in _partitions(tuple(free), k)
        if any(len(group) == k and must <= set(group) for group in partition)
    )
    # Of equal partitions, and of equal sets in one, the first is kept, as `max` does.
    best = max(allowed, key=lambda partition: sum(map(score, partition)), default=())
    return max((group for group in best if must <= set(group)), key=score, default=())


def _partitions(free: tuple[int, ...], k: int) -> Iterator[tuple[tuple[int, ...], ...]]:
    """Yield every partition into k-sets and one group of what is left over, in upstream's order.

    Upstream fills the GPUs up with padding at the end; all of it is in one group.
    """
    if not free:
        yield ()
        return
    first, *others = free
    short = len(free) % k
    groups = [(first, *rest) for rest in combinations(others, k - 1)]
    groups += [(first, *rest) for rest in combinations(others, short - 1)] if short else []
    behind = max(free) + 1
    for group in sorted(groups, key=lambda group: (*group, *[behind] * (k - len(group)))):
        left = tuple(gpu for gpu in free if gpu not in group)
        for rest in _partitions(left, k):
            yield (group, *rest)


if __name__ == "__main__":
    sys.stdout.write(page(comparisons()))
