"""Waiting for what gives no event."""

import asyncio

PATIENCE = 60
"""How long tests wait for what comes soon; a machine may be busy, or stand still meanwhile [s]."""


async def until(claim):
    """Return when the claim holds; the test fails when it does not hold in time.

    What a claim is about may be on its way still: until then it may fail.
    """
    why = None
    try:
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    if claim():
                        return
                except (LookupError, TypeError, AttributeError) as error:
                    why = error
                await asyncio.sleep(0.001)
    except TimeoutError:
        raise TimeoutError from why


async def until_true(claim):
    """Return when the coroutine function says so; the test fails when it does not in time."""
    async with asyncio.timeout(PATIENCE):
        while not await claim():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
