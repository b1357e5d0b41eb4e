"""Run a program of the node within a time limit."""

import asyncio
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

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

    A daemon that it leaves running may keep its output open, so the output is a file. It is in
    memory, since the root of the agent's container is read-only.

    Args:
        command: The program, searched in the `PATH` of the environment, and its arguments.
        environment: All its variables.
        text: Its standard input.
        seconds: It is killed after this time.
    """
    with os.fdopen(os.memfd_create("output"), "w+b") as output:
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=output,
                stderr=output,
                env=environment,
                start_new_session=True,
            )
        except OSError as error:
            return Result("", f"{command[0]} cannot be started: {error.strerror}")
        try:
            async with asyncio.timeout(seconds):
                await _write(process, text)
                code = await process.wait()
        except TimeoutError:
            return Result("", f"{_named(command)} did not end within {seconds:g} s")
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        printed = os.pread(output.fileno(), _OUTPUT_MAX, 0).decode(errors="replace")
    if code:
        said = " ".join(printed.split())[:_SHOWN]
        return Result(printed, f"{_named(command)} ended with status {code}: {said or 'no output'}")
    return Result(printed)


async def _write(process: asyncio.subprocess.Process, text: str) -> None:
    if process.stdin is None:
        return
    with suppress(ConnectionError):
        process.stdin.write(text.encode())
        await process.stdin.drain()
    process.stdin.close()


def _named(command: Sequence[str]) -> str:
    """Return the command without the programs that only start it."""
    return next((part for part in command if part.startswith("nvidia-")), command[0])
