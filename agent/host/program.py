"""Run a program of the node within a time limit."""

import asyncio
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import BinaryIO

_OUTPUT_MAX = 64 << 10
_SHOWN = 300


@dataclass(frozen=True, slots=True)
class Result:
    """The end of a program."""

    output: str
    problem: str | None = None
    """Why it failed, for people; None if it succeeded."""


async def run_program(
    command: Sequence[str], environment: Mapping[str, str], text: str, seconds: float
) -> Result:
    """Run a program and return its output.

    A daemon that it leaves running may keep its output open, and a program may end before it has
    read its input, so both are files. They are in memory, since the root of the agent's container
    is read-only.

    Args:
        command: The program, searched in the `PATH` of the environment, and its arguments.
        environment: All its variables.
        text: Its standard input.
        seconds: It is killed after this time.
    """
    with _memory_file("input") as standard_input, _memory_file("output") as output:
        standard_input.write(text.encode())
        standard_input.seek(0)
        try:
            # Not by the event loop: uvloop forks, and gRPC's handlers of a fork end the child while
            # other threads are in calls. Without `preexec_fn`, this is `vfork`, which runs none.
            process = subprocess.Popen(  # noqa: S603, ASYNC220 - takes a millisecond.
                command,
                stdin=standard_input,
                stdout=output,
                stderr=output,
                env=environment,
                start_new_session=True,
            )
        except OSError as error:
            return Result("", f"{command[0]} cannot be started: {error.strerror}")
        try:
            async with asyncio.timeout(seconds):
                code = await _end(process)
        except TimeoutError:
            return Result("", f"{_named(command)} did not end within {seconds:g} s")
        finally:
            if process.returncode is None:
                process.kill()
                await _end(process)
        printed = os.pread(output.fileno(), _OUTPUT_MAX, 0).decode(errors="replace")
    if code:
        shown = " ".join(printed.split())[:_SHOWN]
        return Result(
            printed, f"{_named(command)} ended with status {code}: {shown or 'no output'}"
        )
    return Result(printed)


async def _end(process: subprocess.Popen[bytes]) -> int:
    """Wait until a process has ended, and return its status."""
    ended = asyncio.Event()
    loop, descriptor = asyncio.get_running_loop(), os.pidfd_open(process.pid)
    loop.add_reader(descriptor, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
    return process.wait()


def _memory_file(name: str) -> BinaryIO:
    return os.fdopen(os.memfd_create(name), "w+b", buffering=0)


def _named(command: Sequence[str]) -> str:
    """Return the command without the programs that only start it."""
    return next((part for part in command if part.startswith("nvidia-")), command[0])
