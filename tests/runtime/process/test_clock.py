import asyncio
import time
from datetime import datetime

from waiting import PATIENCE

from runtime.process.clock import now_rfc3339, rfc3339, wait_until, wall


async def test_wait_for_a_past_moment_returns_immediately():
    await wait_until(10, clock=lambda: 10)


async def test_a_clock_that_jumped_while_the_machine_slept_ends_the_wait_at_the_next_look():
    now = 0.0
    wait = asyncio.create_task(wait_until(86_400, clock=lambda: now, step=0.001))
    await asyncio.sleep(0.01)
    assert not wait.done()

    now = 86_400.0

    async with asyncio.timeout(PATIENCE):
        await wait


async def test_a_clock_that_was_set_back_prolongs_the_wait():
    readings = iter([9.999, 9.0, 9.5, 10.0])

    await wait_until(10, clock=lambda: next(readings), step=0.001)

    assert next(readings, None) is None


def test_wall_clock_is_in_seconds_since_1970():
    before = time.time()  # noqa: TID251
    assert before <= wall() <= time.time()  # noqa: TID251


def test_a_moment_is_formatted_in_whole_seconds_of_utc():
    assert rfc3339(1_767_323_045.9) == "2026-01-02T03:04:05Z"


def test_the_time_now_is_formatted_in_microseconds_of_utc():
    before, now, after = wall(), now_rfc3339(), wall()

    assert now[-8] == "."
    assert now[-1] == "Z"
    assert before - 1e-6 <= datetime.fromisoformat(now).timestamp() <= after
