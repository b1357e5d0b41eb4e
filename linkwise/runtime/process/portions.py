"""Passes over many items, a portion at a time, so that each one costs little."""

from collections.abc import Callable, Collection, Iterator
from itertools import islice
from typing import Generic, TypeVar

T = TypeVar("T")

SIZE = 64
"""Items of a portion."""
_PAUSE = 0.02
"""Between two portions of a pass [s]."""
_AGAIN = 1.0
"""After a pass of several portions, during which items may have changed that it had passed [s]."""


class Portions(Generic[T]):
    """Passes over items. Few items are one portion, which each call returns."""

    def __init__(self, items: Callable[[], Collection[T]]) -> None:
        """Start without a pass; `items` returns all items, when a pass begins."""
        self._items = items
        self._left: Iterator[T] = iter(())
        self._due: float | None = None
        """When the next portion, or another pass, is due; None: at the next change."""
        self._is_under_way = False

    def next(self, now: float) -> list[T]:
        """Return the next portion; empty while it is not due.

        Args:
            now: The time of a clock [s]; of a pass under way.
        """
        if self._is_under_way and self._due is not None and now < self._due:
            return []
        was_under_way = self._is_under_way
        if not was_under_way:
            items = self._items()
            self._left, self._is_under_way = iter(items), len(items) > SIZE
        portion = list(islice(self._left, SIZE))
        if len(portion) < SIZE:
            self._is_under_way = False
        self._due = now + _PAUSE if self._is_under_way else now + _AGAIN if was_under_way else None
        return portion

    def time_left(self, now: float) -> float | None:
        """Return the time until the next portion is due [s]; None: at the next change."""
        return None if self._due is None else max(0.0, self._due - now)
