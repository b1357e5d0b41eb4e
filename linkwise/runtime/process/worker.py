"""Run functions on untrusted input in a child process: one job at a time, within hard limits.

A thread is not enough: while Python or a library in C works on a text, all other threads wait.
The child has a limit of memory and of time, and is replaced when a job exceeds one.
"""

import asyncio
import pickle
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress

import structlog

from linkwise.runtime.process.worker_process import (
    DONE,
    FAILED,
    LENGTH,
    NO_MEMORY,
    READY,
    TOO_LARGE,
)

MEMORY = 128 << 20
"""Maximum growth of the address space of the child after it is ready [bytes]."""
SECONDS = 2.5
"""Longest time for one job [s]; an API server waits 3 s for an answer."""
MAX_JOBS_PER_FUNCTION = 4
"""Most pending jobs of one function. A job counts even after its caller was cancelled."""
_START_SECONDS = 60
"""Longest time for the child to import its modules, on a busy machine [s]."""

_END_SECONDS = 1
"""Longest time for the pipes of a child to close after its end [s]."""

_log = structlog.get_logger()


class LimitError(Exception):
    """A job exceeded a limit. The text is a clause for users that names the limit."""


class BusyError(Exception):
    """A job was not started: too many jobs of its function are pending."""


class Worker:
    """A child process and its queue of jobs."""

    def __init__(self, modules: Sequence[str], *, memory: int, seconds: float) -> None:
        self._modules, self._memory, self._seconds = modules, memory, seconds
        self._lock = asyncio.Lock()
        self._jobs: dict[asyncio.Task[bytes], Callable[..., bytes]] = {}
        self._started: asyncio.Task[Process] | None = None
        self.given_up = 0
        """Number of jobs that exceeded a limit."""

    async def run(self, job: Callable[..., bytes], *arguments: object) -> bytes:
        """Return the result of a job. The job continues when the caller is cancelled.

        Args:
            job: A function of a module; it and its arguments are pickled.
            arguments: Of the function.

        Raises:
            BusyError: `MAX_JOBS_PER_FUNCTION` jobs of the function are pending.
            LimitError: The job exceeded a limit.
            RuntimeError: The job raised an exception; the text is the child's traceback.

        Cost: pickling, and two copies of the arguments and of the result.
        """
        if self.pending_jobs(job) >= MAX_JOBS_PER_FUNCTION:
            raise BusyError
        task = asyncio.create_task(self._run_exclusively(pickle.dumps((job, arguments))))
        self._jobs[task] = job
        task.add_done_callback(self._forget)
        return await asyncio.shield(task)

    def pending_jobs(self, job: Callable[..., bytes]) -> int:
        """Return how many jobs of a function wait or run."""
        return sum(each is job for each in self._jobs.values())

    def start(self) -> None:
        """Start the child; the first job waits until it is ready."""
        self._started = asyncio.create_task(self._start())

    async def stop(self) -> None:
        """End the child, and cancel all jobs."""
        for job in tuple(self._jobs):
            job.cancel()
        await asyncio.gather(*self._jobs, return_exceptions=True)
        if self._started is not None:
            self._started.cancel()
            with suppress(asyncio.CancelledError, OSError, RuntimeError):
                await _end(await self._started)

    def _forget(self, job: asyncio.Task[bytes]) -> None:
        del self._jobs[job]
        if not job.cancelled():
            # If the caller was cancelled, the loop would log the exception as never retrieved.
            job.exception()

    async def _run_exclusively(self, job: bytes) -> bytes:
        async with self._lock:
            if self._started is None:
                self.start()
            assert self._started is not None  # noqa: S101
            try:
                child = await self._started
            except (OSError, RuntimeError):
                self._started = None
                raise
            try:
                async with asyncio.timeout(self._seconds):
                    status, content = await _request(child, job)
            except TimeoutError:
                reason = f"it takes longer than {self._seconds:g} s"
            except (EOFError, OSError):
                reason = "it ended the process that worked on it"
            else:
                if status == DONE:
                    return content
                if status == FAILED:
                    raise RuntimeError(content.decode())
                reason = _REASONS[status].format(self._memory >> 20)
                if status == TOO_LARGE:
                    self.given_up += 1
                    raise LimitError(reason)
            self.given_up += 1
            _log.warning("Gave up job", err=reason)
            self.start()
            await _end(child)
            raise LimitError(reason)

    async def _start(self) -> Process:
        creating = asyncio.create_task(
            asyncio.create_subprocess_exec(
                sys.executable,
                *(
                    "-m",
                    "linkwise.runtime.process.worker_process",
                    str(self._memory),
                    *self._modules,
                ),
                stdin=PIPE,
                stdout=PIPE,
                # An interrupt from a terminal must reach the parent only, which ends the child.
                start_new_session=True,
            )
        )
        try:
            # Without the shield, a cancellation here would leave the process running.
            child = await asyncio.shield(creating)
            async with asyncio.timeout(_START_SECONDS):
                status, _ = await _read_response(child)
        except (TimeoutError, EOFError, OSError, asyncio.CancelledError) as error:
            await _end(await creating)
            if isinstance(error, asyncio.CancelledError):
                raise
            raise RuntimeError("the process for untrusted input does not start") from error
        assert status == READY  # noqa: S101
        return child


_REASONS = {
    NO_MEMORY: "it needs more than {} MiB of memory",
    TOO_LARGE: "the answer to it is too large",
}


async def _request(child: Process, job: bytes) -> tuple[bytes, bytes]:
    assert child.stdin is not None  # noqa: S101
    child.stdin.write(len(job).to_bytes(LENGTH))
    child.stdin.write(job)
    await child.stdin.drain()
    return await _read_response(child)


async def _read_response(child: Process) -> tuple[bytes, bytes]:
    assert child.stdout is not None  # noqa: S101
    status = await child.stdout.readexactly(1)
    length = int.from_bytes(await child.stdout.readexactly(LENGTH))
    return status, await child.stdout.readexactly(length)


async def _end(child: Process) -> None:
    """Kill the child, and wait until its pipes are closed, which is later than its end."""
    assert child.stdin is not None  # noqa: S101
    assert child.stdout is not None  # noqa: S101
    with suppress(ProcessLookupError):
        child.kill()
    child.stdin.close()
    await child.wait()
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(_END_SECONDS):
            await child.stdout.read()
            await child.stdin.wait_closed()


@asynccontextmanager
async def worker(
    *modules: str, memory: int = MEMORY, seconds: float = SECONDS
) -> AsyncIterator[Worker]:
    """Run a child process while the block runs.

    Args:
        modules: What the child imports before it is ready: those of its jobs.
        memory: How much its address space may grow while it works [bytes].
        seconds: Longest time for one job [s].
    """
    running = Worker(modules, memory=memory, seconds=seconds)
    running.start()
    try:
        yield running
    finally:
        await running.stop()
