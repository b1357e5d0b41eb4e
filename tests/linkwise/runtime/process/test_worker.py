import asyncio
import os
import sys
import time

import pytest
from support.waiting import until

from linkwise.runtime.process.worker import MAX_JOBS_PER_FUNCTION, BusyError, LimitError, worker
from linkwise.runtime.process.worker_process import MAX_RESULT_BYTES

MIB = 1 << 20
PATIENT = 60
"""For jobs that are quick where the machine is [s]."""


def process_id():
    return str(os.getpid()).encode()


def echo(content):
    return content


def take_memory(size):
    return bytes(size)[:1]


def sleep_for_ever():
    time.sleep(3600)
    return b""


def sleep_a_moment():
    time.sleep(0.3)
    return b"done"


def leave():
    os._exit(3)


def answer_too_much():
    return bytes(MAX_RESULT_BYTES + 1)


def print_something():
    print("a library says something")  # noqa: T201
    return b"answer"


def fail():
    raise ValueError("a bug")


@pytest.fixture(autouse=True)
def finds_this_file(monkeypatch):
    """The child imports this module, and it what stands beside the tests."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))


async def test_jobs_run_in_one_child_process():
    async with worker(seconds=PATIENT) as running:
        first = await running.run(process_id)

        assert int(first) != os.getpid()
        assert await running.run(process_id) == first
        assert await running.run(echo, b"x" * MIB) == b"x" * MIB


@pytest.mark.parametrize(
    ("job", "arguments", "seconds", "why"),
    [
        pytest.param(take_memory, (256 * MIB,), PATIENT, "more than 64 MiB of memory", id="memory"),
        pytest.param(sleep_for_ever, (), 0.2, "longer than 0.2 s", id="time"),
        pytest.param(leave, (), PATIENT, "ended the process", id="end"),
        pytest.param(answer_too_much, (), PATIENT, "too large", id="answer"),
    ],
)
async def test_job_beyond_a_limit_is_ended_and_the_next_one_runs(job, arguments, seconds, why):
    async with worker(memory=64 * MIB, seconds=seconds) as running:
        with pytest.raises(LimitError, match=why):
            await running.run(job, *arguments)

        assert running.given_up == 1
        if seconds == PATIENT:
            assert await running.run(echo, b"next") == b"next"


async def test_exception_of_a_job_is_raised_and_the_child_continues():
    async with worker(seconds=PATIENT) as running:
        before = await running.run(process_id)
        with pytest.raises(RuntimeError, match="a bug"):
            await running.run(fail)

        assert await running.run(process_id) == before
        assert running.given_up == 0


async def test_output_of_a_job_is_no_response():
    async with worker(seconds=PATIENT) as running:
        assert await running.run(print_something) == b"answer"


async def test_event_loop_runs_during_a_job():
    async with worker(seconds=PATIENT) as running:
        job = asyncio.create_task(running.run(sleep_a_moment))
        turns = 0
        while not job.done():
            turns += 1
            await asyncio.sleep(0.01)

        assert await job == b"done"
        assert turns > 1


async def test_job_of_a_cancelled_caller_is_completed_before_the_next():
    async with worker(seconds=PATIENT) as running:
        before = await running.run(process_id)
        gone = asyncio.create_task(running.run(sleep_a_moment))
        await asyncio.sleep(0)
        gone.cancel()

        assert await running.run(process_id) == before


async def test_jobs_of_cancelled_callers_are_bounded():
    async with worker(seconds=PATIENT) as running:
        for _ in range(MAX_JOBS_PER_FUNCTION):
            gone = asyncio.create_task(running.run(sleep_a_moment))
            await asyncio.sleep(0)
            gone.cancel()

        assert running.pending_jobs(sleep_a_moment) == MAX_JOBS_PER_FUNCTION
        with pytest.raises(BusyError):
            await running.run(sleep_a_moment)
        assert await running.run(echo, b"another kind") == b"another kind"
        assert await running.run(sleep_a_moment) == b"done"


async def test_child_ends_with_the_worker_during_any_job():
    async with worker(seconds=PATIENT) as running:
        child = int(await running.run(process_id))
        job = asyncio.create_task(running.run(sleep_for_ever))
        await asyncio.sleep(0)

    with pytest.raises(asyncio.CancelledError):
        await job
    await until(lambda: _is_gone(child))


def _is_gone(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    return False
