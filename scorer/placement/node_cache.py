"""Answers about nodes, kept for as long as they hold: a plan costs what changed since the last one.

A node's ledger never changes, so that what was found of it once is true of the same object for
ever. Snapshots that follow one another share a memo.
"""

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from cluster.ledger import NodeLedger
from topology.table import Table

if TYPE_CHECKING:
    from scorer.placement.snapshot import Snapshot

MOST = 256
"""Questions whose answers are kept; of 5,000 nodes each takes 40 KB a number."""

_BLOCK = 128
"""Nodes that are compared at once."""

Nodes: TypeAlias = tuple[NodeLedger, ...]
Answer: TypeAlias = tuple[float, ...]
Number = TypeVar("Number", np.int64, np.float64)


class DeadlineExceeded(Exception):  # noqa: N818 - it says all.
    """The time is over that was granted for asking."""


class _Time:
    """For asking: one for the memo of a cluster and that of the same one with nothing running."""

    def __init__(self, over: Callable[[], bool] | None) -> None:
        self.over = over or _never


class NodeCache:
    """What was found of nodes, by the question."""

    def __init__(self, over: Callable[[], bool] | None = None) -> None:
        """Begin with nothing.

        Args:
            over: Whether the time for asking is over; None: it never is.
        """
        self._time = _Time(over)
        self._found: dict[Hashable, tuple[Nodes, NDArray[Any]]] = {}
        """The least recently used first."""
        self._numbers: dict[Hashable, int] = {}
        self._states: dict[tuple[Table, int], int] = {}
        self.states: list[tuple[Table, int]] = []
        """By number: a machine's tables, and the mask of its free GPUs."""
        self.emptied: tuple[Hashable, Nodes, Snapshot] | None = None
        """The last snapshot with nothing running: for which preferences and nodes, and it."""

    def anew(self) -> "NodeCache":
        """Return a memo that knows nothing, with the same time."""
        made = NodeCache()
        made._time = self._time
        return made

    @cached_property
    def of_freed(self) -> "NodeCache":
        """The memo of the same cluster when every pod with GPUs that can end is gone."""
        return self.anew()

    @contextmanager
    def granted(self, over: Callable[[], bool]) -> Iterator[None]:
        """Grant no more time within the block than until something is over."""
        before, self._time.over = self._time.over, over
        try:
            yield
        finally:
            self._time.over = before

    def copied(self, over: Callable[[], bool] | None = None) -> "NodeCache":
        """Return a memo that knows the same; what either learns from now on stays its own.

        Args:
            over: Of the copy, whether the time for asking is over; None: it never is.
        """
        made = NodeCache(over)
        made._found, made._numbers = dict(self._found), dict(self._numbers)
        made._states, made.states = dict(self._states), list(self.states)
        if self.emptied:
            preferences, nodes, empty = self.emptied
            made.emptied = preferences, nodes, empty.apart(over)
        return made

    def of(
        self,
        question: Hashable,
        nodes: Nodes,
        ask: Callable[[NodeLedger], Answer],
        dtype: type[Number],
    ) -> NDArray[Number]:
        """Return the answers of all nodes, shape (numbers of an answer, nodes); not to be changed.

        Args:
            question: Tells this question from all others.
            nodes: Of whom it is asked; not none.
            ask: Returns the answer of one node, which depends on nothing else.
            dtype: Of the answers.

        Raises:
            Overdue: The time is over; that is looked at before each node that is asked. What was
                found until then is not asked again, as long as it is kept.

        Cost: 0.1 ms for 5,000 nodes, and `ask` for each of them that is new.
        """
        over = self._time.over
        if over():
            raise DeadlineExceeded
        before, known = self._found.pop(question, ((), np.empty((0, 0), dtype)))
        found, left = _followed(before, known, nodes, ask, over)
        if left:
            there = np.delete(np.arange(len(nodes)), left)
            nodes, found = tuple(nodes[i] for i in there.tolist()), found[:, there]
        self._found[question] = nodes, found
        if len(self._found) > MOST:
            del self._found[next(iter(self._found))]
        if left:
            raise DeadlineExceeded
        return found

    def knows(self, question: Hashable) -> bool:
        """Tell whether a question was asked before, of whichever nodes."""
        return question in self._found

    def learn(self, question: Hashable, nodes: Nodes, answers: NDArray[Any]) -> None:
        """Take the answers to a question that were found in another way; as `of` returns them."""
        self._found[question] = nodes, answers

    def number(self, thing: Hashable) -> int:
        """Return a number that stands for a thing, from 1."""
        return self._numbers.setdefault(thing, len(self._numbers) + 1)

    def state(self, table: Table, free: int) -> int:
        """Return the number of a machine in a state, from 0."""
        number = self._states.setdefault((table, free), len(self.states))
        if number == len(self.states):
            self.states.append((table, free))
        return number


def changed_nodes(before: Nodes, now: Nodes) -> list[int]:
    """Return the places at which two rows of nodes differ, up to the end of the shorter one."""
    places: list[int] = []
    for start in range(0, min(len(before), len(now)), _BLOCK):
        old, new = before[start : start + _BLOCK], now[start : start + _BLOCK]
        # Of the same objects this is found four times as fast as one by one.
        if old != new:
            pairs = enumerate(zip(old, new, strict=False), start)
            places += (place for place, (one, other) in pairs if one is not other)
    return places


def _never() -> bool:
    return False


def _followed(
    before: Nodes,
    found: NDArray[Any],
    now: Nodes,
    ask: Callable[[NodeLedger], Answer],
    over: Callable[[], bool],
) -> tuple[NDArray[Any], list[int]]:
    """Return the answers of the nodes as they are now, and the places for which there was no time.

    Those that only moved are not asked.
    """
    if before is now:
        return found, []
    shorter = min(len(before), len(now))
    differ = changed_nodes(before, now)
    places = [*differ, *range(shorter, len(now))]
    if not places and len(before) == len(now):
        return found, []
    moved = {id(before[i]): i for i in (*differ, *range(shorter, len(before)))}
    answers: list[Answer] = []
    for i in places:
        place = moved.get(id(now[i]))
        if place is None and over():
            break
        answers.append(ask(now[i]) if place is None else tuple(found[:, place].tolist()))
    after = np.empty((len(answers[0]) if answers else len(found), len(now)), dtype=found.dtype)
    if shorter:
        after[:, :shorter] = found[:, :shorter]
    if answers:
        after[:, places[: len(answers)]] = np.array(answers, dtype=found.dtype).T
    return after, places[len(answers) :]
