"""Calls of a coroutine function for many arguments, of which few are under way at a time."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


async def map_few(call: Callable[[T], Awaitable[R]], items: Iterable[T], most: int) -> list[R]:
    """Return the results in the order of the items.

    Thousands of tasks that start together would block the event loop, and time limits would pass
    meanwhile.

    Args:
        call: Called once with each item.
        items: The arguments.
        most: Calls at a time.

    Raises:
        Exception: The first one of a call; the others go on.
    """
    pending = list(items)
    results: dict[int, R] = {}
    numbered = iter(enumerate(pending))

    async def work() -> None:
        for number, item in numbered:
            results[number] = await call(item)

    await asyncio.gather(*(work() for _ in range(min(most, len(pending)))))
    return [results[number] for number in range(len(pending))]
