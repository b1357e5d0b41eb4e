"""Clocks. The wall clock, and waiting by it: a timer stands still while a machine is suspended.

Certificates end at a moment of the wall clock. A sleep until that moment would end late by as long
as the machine slept, so the clock is read again and again.
"""

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache

Clock = Callable[[], float]


def wall() -> float:
    """Return the time now [s since 1970]; only a process's edge hands this function on."""
    return time.time()  # noqa: TID251


def monotonic() -> float:
    """Return the time of a clock that goes on evenly, and that threads may read [s]."""
    return time.monotonic()


def loop_time() -> float:
    """Return the time of the running loop's clock: even, and what its timers go by [s]."""
    return asyncio.get_running_loop().time()


def rfc3339(moment: float) -> str:
    """Return a moment [s since 1970] in RFC 3339 with whole seconds, as Kubernetes' `Time`."""
    return f"{_whole_second(int(moment))}Z"


def now_rfc3339() -> str:
    """Return the time now in RFC 3339 with microseconds, as Kubernetes' `MicroTime`."""
    second, rest = divmod(time.time_ns(), 1_000_000_000)
    return f"{_whole_second(second)}.{rest // 1000:06}Z"


@lru_cache(maxsize=1)
def _whole_second(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")


async def wait_until(moment: float, *, clock: Clock = wall, step: float = 30) -> None:
    """Return when the clock has reached a moment.

    Args:
        moment: [s since 1970].
        clock: What is read.
        step: The clock is read at least so often; the bound on being late after a sleep [s].
    """
    while (left := moment - clock()) > 0:  # noqa: ASYNC110 - no event tells the time.
        await asyncio.sleep(min(left, step))
