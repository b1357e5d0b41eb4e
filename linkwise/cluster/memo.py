"""Results of a pure function that are kept while its arguments stay the same objects."""

from collections.abc import Callable, Iterable
from typing import Generic, TypeAlias, TypeVar

T = TypeVar("T")

_Arguments: TypeAlias = tuple[object, ...]


class Memo(Generic[T]):
    """Calls a function of immutable objects for all objects of a cluster, again after each change.

    Arguments are compared by identity, and tuples by the identity of their items, so that a
    comparison costs the same for objects of any size. An equal copy only costs another call.
    """

    def __init__(self, function: Callable[..., T]) -> None:
        """Start without results."""
        self._function = function
        self._last: dict[_Arguments, tuple[_Arguments, T]] = {}
        """Arguments and result by the ids of the arguments, which are in use while these live."""

    def map(self, calls: Iterable[_Arguments]) -> list[T]:
        """Return the result of each call; only these results are kept for the next time.

        Args:
            calls: The arguments of each.
        """
        kept: dict[_Arguments, tuple[_Arguments, T]] = {}
        results: list[T] = []
        for arguments in calls:
            key = tuple([tuple(map(id, a)) if type(a) is tuple else id(a) for a in arguments])
            known = kept.get(key) or self._last.get(key)
            if known is None:
                known = arguments, self._function(*arguments)
            kept[key] = known
            results.append(known[1])
        self._last = kept
        return results
