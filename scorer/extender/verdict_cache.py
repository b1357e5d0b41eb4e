"""Cache results of nodes until the nodes change."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

T = TypeVar("T")

_QUESTIONS_MAX = 64
"""Few pods of a cluster have different requests."""


class _Results(dict[str, T]):
    """Results by node; a missing one is computed when it is read."""

    compute: Callable[[str], T]

    def __missing__(self, name: str) -> T:
        result = self[name] = self.compute(name)
        return result


class VerdictCache:
    """Results by question and node.

    A scheduler asks the same about thousands of nodes for each pod, and few nodes change between
    two pods.
    """

    def __init__(self) -> None:
        """Start empty."""
        self._results: dict[str, _Results[Any]] = {}
        """By question, the least recently used first."""

    def invalidate(self, names: Iterable[str]) -> None:
        """Drop all results of nodes that changed."""
        for name in names:
            for results in self._results.values():
                results.pop(name, None)

    def get_or_compute(
        self, question: str, names: Sequence[str], compute: Callable[[str], T]
    ) -> list[T]:
        """Return the result of each node.

        Args:
            question: Everything that the result depends on besides the node.
            names: Of nodes.
            compute: Returns the result of one node.

        Cost: a look-up per name, and `compute` for each node without a cached result.
        """
        results: _Results[T] | None = self._results.pop(question, None)
        if results is None:
            results = _Results()
            if len(self._results) >= _QUESTIONS_MAX:
                del self._results[next(iter(self._results))]
        self._results[question] = results
        results.compute = compute
        return list(map(results.__getitem__, names))
