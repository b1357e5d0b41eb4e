"""Waiting for what gives no event."""

import asyncio


async def until(claim, *, within=5):
    """Return when the claim holds; the test fails when it does not hold in time [s]."""
    async with asyncio.timeout(within):
        while not claim():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


async def until_true(claim, *, within=5):
    """Return when the coroutine function says so; the test fails when it does not in time [s]."""
    async with asyncio.timeout(within):
        while not await claim():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
