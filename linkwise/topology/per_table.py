"""Caches of results that were computed from tables; they keep these tables in memory."""

from collections.abc import Callable
from functools import lru_cache
from typing import TypeVar

T = TypeVar("T")

_clear: list[Callable[[], None]] = []


def per_table(entries: int) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Cache the results of a function of a table, until a table is dropped.

    Args:
        entries: Maximum number of results.
    """

    def decorate(function: Callable[..., T]) -> Callable[..., T]:
        cached = lru_cache(maxsize=entries)(function)
        _clear.append(cached.cache_clear)
        return cached

    return decorate


def empty_caches() -> None:
    """Empty all these caches, so that tables that are not in use elsewhere are freed."""
    for clear in _clear:
        clear()
