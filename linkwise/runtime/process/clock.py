"""Clocks, and times as Kubernetes writes them."""

import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

Clock = Callable[[], float]

YEAR_10000 = 253_402_300_800
"""The first moment that RFC 3339 cannot express [s since 1970]."""


def wall() -> float:
    """Return the time now [s since 1970]; passed to other code as a `Clock` by `__main__` only."""
    return time.time()  # noqa: TID251


def monotonic() -> float:
    """Return the time of a monotonic clock, in any thread [s]."""
    return time.monotonic()


def cpu_time() -> float:
    """Return the time for which processors ran this process [s]."""
    return time.process_time()


def loop_time() -> float:
    """Return the time of the running loop's clock, which its timers use [s]."""
    # The command, which has no loop, does without this library: it costs 50 ms to import.
    import asyncio  # noqa: PLC0415

    return asyncio.get_running_loop().time()


async def wait_at_most(seconds: float | None, event: "asyncio.Event") -> None:
    """Return when an event is set, or after a time [s] if there is one."""
    import asyncio  # noqa: PLC0415 - as above.

    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


def rfc3339(moment: float) -> str:
    """Return a moment [s since 1970] in RFC 3339 with whole seconds, as Kubernetes' `Time`.

    One before 1970 or after the year 9999 becomes the next one that can be written.
    """
    return f"{_whole_second(int(min(max(moment, 0), YEAR_10000 - 1)))}Z"


def now_rfc3339() -> str:
    """Return the time now in RFC 3339 with microseconds, as Kubernetes' `MicroTime`."""
    second, rest = divmod(time.time_ns(), 1_000_000_000)
    return f"{_whole_second(second)}.{rest // 1000:06}Z"


@lru_cache(maxsize=1)
def _whole_second(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
