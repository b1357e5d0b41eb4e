"""Wait for a condition that no event announces."""

import asyncio
import inspect

PATIENCE = 120
"""How long a test waits for something that normally takes milliseconds [s]. A busy machine may
stand still for many seconds."""


async def until(condition, patience=PATIENCE):
    """Return when the condition is true.

    A LookupError counts as false: the object that the condition looks up may not exist yet.

    Raises:
        TimeoutError: The condition was not true in time; the message shows its source.
    """
    why = None
    try:
        async with asyncio.timeout(patience):
            while True:
                try:
                    if condition():
                        return
                except LookupError as error:
                    why = error
                await asyncio.sleep(0.001)
    except TimeoutError:
        raise TimeoutError(f"not true after {patience} s: {_source(condition)}") from why


async def until_true(condition, patience=PATIENCE):
    """Return when the coroutine function returns something true.

    Raises:
        TimeoutError: It did not in time; the message shows its source.
    """
    try:
        async with asyncio.timeout(patience):
            while not await condition():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise TimeoutError(f"not true after {patience} s: {_source(condition)}") from None


def _source(condition):
    """Return the lines in which a function is written, such as the call that a lambda is in."""
    try:
        return " ".join(inspect.getsource(condition).split())
    except (OSError, TypeError):
        return repr(condition)
