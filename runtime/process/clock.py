"""Clocks, and waiting by the wall clock.

Certificates expire by the wall clock. Timers stop while a machine is suspended, so a single sleep
until the expiry could end too late; `wait_until` reads the clock repeatedly.
"""

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache

Clock = Callable[[], float]


def wall() -> float:
    """Return the time now [s since 1970]; passed to other code as a `Clock` by `__main__` only."""
    return time.time()  # noqa: TID251


def monotonic() -> float:
    """Return the time of a monotonic clock, in any thread [s]."""
    return time.monotonic()


def loop_time() -> float:
    """Return the time of the running loop's clock, which its timers use [s]."""
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
    """Wait until the clock has reached a moment.

    Args:
        moment: [s since 1970].
        clock: The clock to read.
        step: Longest time between two reads, and longest delay after a suspension [s].
    """
    while (left := moment - clock()) > 0:  # noqa: ASYNC110 - there is no event for a time.
        await asyncio.sleep(min(left, step))
