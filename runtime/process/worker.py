"""A child process for work on untrusted input: one job at a time, within hard limits.

A thread would not do: while Python or a library in C works on a text, every other thread waits.
The child has a limit of memory and one of time, and is replaced when a job exceeds one of them.
"""

import asyncio
import pickle
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress

import structlog

from runtime.process.worker_process import DONE, FAILED, LENGTH, NO_MEMORY, READY, TOO_LARGE

MEMORY = 128 << 20
"""How much the address space of the child may grow after it is ready [bytes]."""
SECONDS = 2.5
"""Longest time for one job [s]; an API server waits 3 s for an answer."""
MAX_JOBS_PER_FUNCTION = 4
"""Most jobs of one function that wait or run. A job whose caller was cancelled counts, too."""
_START_SECONDS = 60
"""Longest time for the child to import its modules, also on a busy machine [s]."""

_END_SECONDS = 1
"""Longest time for the pipes of a child to close after its end."""

_log = structlog.get_logger()


class LimitError(Exception):
    """A job was given up. The text is a clause for users that names the limit it exceeded."""


class BusyError(Exception):
    """A job was not started: too many of its kind wait already."""


class Worker:
    """One child process, and the jobs that wait for it."""

    def __init__(self, modules: Sequence[str], *, memory: int, seconds: float) -> None:
        self._modules, self._memory, self._seconds = modules, memory, seconds
        self._turn = asyncio.Lock()
        self._jobs: dict[asyncio.Task[bytes], Callable[..., bytes]] = {}
        self._started: asyncio.Task[Process] | None = None
        self.given_up = 0
        """Jobs that exceeded a limit, so far."""

    async def run(self, job: Callable[..., bytes], *arguments: object) -> bytes:
        """Return the result of a job. The job continues when the caller is cancelled.

        Args:
            job: A function of a module; it and its arguments are pickled.
            arguments: Of the function.

        Raises:
            BusyError: It was not started, since `MAX_JOBS_PER_FUNCTION` of its kind wait already.
            LimitError: It exceeded a limit.
            RuntimeError: It raised something; the text is the child's traceback.

        Cost: pickling, and two copies of what is sent and returned.
        """
        if self.pending_jobs(job) >= MAX_JOBS_PER_FUNCTION:
            raise BusyError
        task = asyncio.create_task(self._in_turn(pickle.dumps((job, arguments))))
        self._jobs[task] = job
        task.add_done_callback(self._forget)
        return await asyncio.shield(task)

    def pending_jobs(self, job: Callable[..., bytes]) -> int:
        """Return how many jobs of a function wait or run, those of cancelled callers included."""
        return sum(one is job for one in self._jobs.values())

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
            # Without this the loop logs an exception that was never retrieved, if the caller left.
            job.exception()

    async def _in_turn(self, job: bytes) -> bytes:
        async with self._turn:
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
                    status, content = await _ask(child, job)
            except TimeoutError:
                why = f"it takes longer than {self._seconds:g} s"
            except (EOFError, OSError):
                why = "it ended the process that worked on it"
            else:
                if status == DONE:
                    return content
                if status == FAILED:
                    raise RuntimeError(content.decode())
                why = _REASONS[status].format(self._memory >> 20)
                if status == TOO_LARGE:
                    self.given_up += 1
                    raise LimitError(why)
            self.given_up += 1
            _log.warning("Gave up job", err=why)
            self.start()
            await _end(child)
            raise LimitError(why)

    async def _start(self) -> Process:
        creating = asyncio.create_task(
            asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", "runtime.process.worker_process", str(self._memory), *self._modules),
                stdin=PIPE,
                stdout=PIPE,
                # An interrupt from a terminal is for the parent, which ends the child.
                start_new_session=True,
            )
        )
        try:
            # Cancelled while it is created, the process would go on.
            child = await asyncio.shield(creating)
            async with asyncio.timeout(_START_SECONDS):
                status, _ = await _answer(child)
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


async def _ask(child: Process, job: bytes) -> tuple[bytes, bytes]:
    assert child.stdin is not None  # noqa: S101
    child.stdin.write(len(job).to_bytes(LENGTH))
    child.stdin.write(job)
    await child.stdin.drain()
    return await _answer(child)


async def _answer(child: Process) -> tuple[bytes, bytes]:
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
