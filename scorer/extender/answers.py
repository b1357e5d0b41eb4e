"""Answers about nodes, kept until something changes there."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

T = TypeVar("T")

_QUESTIONS = 64
"""How many are remembered. Few pods of a cluster ask for different things."""


class Answers:
    """What was found out about each node.

    A scheduler asks the same of thousands of nodes for each pod, and between two pods few change.
    """

    def __init__(self) -> None:
        """Begin with nothing."""
        self._by_question: dict[str, dict[str, Any]] = {}

    def forget(self, names: Iterable[str]) -> None:
        """Ask nodes again, since something changed there."""
        for name in names:
            for answers in self._by_question.values():
                answers.pop(name, None)

    def ask(self, question: str, names: Sequence[str], answer: Callable[[str], T]) -> list[T]:
        """Return the answer of each node.

        Args:
            question: All that the answer depends on, besides the node.
            names: Of nodes.
            answer: Finds it.

        Cost: a look-up a name, and an answer for each node that was not asked before.
        """
        answers: dict[str, T] | None = self._by_question.pop(question, None)
        if answers is None:
            answers = {}
            if len(self._by_question) >= _QUESTIONS:
                # The one that was asked last is the last.
                del self._by_question[next(iter(self._by_question))]
        self._by_question[question] = answers
        for name in [name for name in names if name not in answers]:
            answers[name] = answer(name)
        return list(map(answers.__getitem__, names))
