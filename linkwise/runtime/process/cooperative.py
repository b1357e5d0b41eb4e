"""Long loops in an event loop, beside which other tasks run."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

T = TypeVar("T")

_AFTER = 500
"""Items after which other tasks run."""


async def cooperatively(items: Iterable[T]) -> AsyncIterator[T]:
    """Yield items, and let other tasks run now and then.

    Args:
        items: They may change meanwhile: those are yielded that are there at the start.
    """
    for number, item in enumerate(list(items), start=1):
        yield item
        if number % _AFTER == 0:
            await asyncio.sleep(0)
