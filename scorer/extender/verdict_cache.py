"""Answers about nodes, kept until something changes there."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

T = TypeVar("T")

_QUESTIONS = 64
"""How many are remembered. Few pods of a cluster ask for different things."""


class _Known(dict[str, T]):
    """Answers by node; what is not there is found out as soon as somebody looks."""

    answer: Callable[[str], T]

    def __missing__(self, name: str) -> T:
        found = self[name] = self.answer(name)
        return found


class VerdictCache:
    """What was found out about each node.

    A scheduler asks the same of thousands of nodes for each pod, and between two pods few change.
    """

    def __init__(self) -> None:
        """Begin with nothing."""
        self._by_question: dict[str, _Known[Any]] = {}

    def forget(self, names: Iterable[str]) -> None:
        """Ask nodes again, since something changed there."""
        for name in names:
            for known in self._by_question.values():
                known.pop(name, None)

    def ask(self, question: str, names: Sequence[str], answer: Callable[[str], T]) -> list[T]:
        """Return the answer of each node.

        Args:
            question: All that the answer depends on, besides the node.
            names: Of nodes.
            answer: Finds it.

        Cost: a look-up a name, and an answer for each node that was not asked before.
        """
        known: _Known[T] | None = self._by_question.pop(question, None)
        if known is None:
            known = _Known()
            if len(self._by_question) >= _QUESTIONS:
                # The one that was asked last is the last.
                del self._by_question[next(iter(self._by_question))]
        self._by_question[question] = known
        known.answer = answer
        return list(map(known.__getitem__, names))
