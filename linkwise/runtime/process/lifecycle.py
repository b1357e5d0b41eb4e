"""Run a process: settings, event loop, signals, garbage collection."""

import asyncio
import gc
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from linkwise.runtime.process.logs import configure
from linkwise.runtime.process.settings import ProcessSettings, SettingsError

_new_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
with suppress(ImportError):  # It does not exist for every platform.
    from uvloop import new_event_loop as _new_loop

_TLS_MESSAGES = {"Fatal error on SSL protocol", "Error occurred during shutdown"}
_CLOSED = "; the handler is closed"
"""The end of uvloop's errors about a transport that was closed. Source: uvloop 0.23, `handles`."""


S = TypeVar("S", bound=ProcessSettings)


def start(settings: type[S], main: Callable[[S, asyncio.Event], Awaitable[None]]) -> int:
    """Run a process with the settings of its environment, and return its exit code.

    An invalid setting is written to standard error, and the exit code is 2.

    Args:
        settings: Declares the settings, which `--help` shows.
        main: As in `run`, after the settings.

    Raises:
        SystemExit: `--help` was given; the code is 0.
    """
    program, *arguments = sys.argv
    if not {"-h", "--help"}.isdisjoint(arguments):
        package = sys.modules["__main__"].__package__ or Path(program).parent.name
        sys.stdout.write(settings.help(package))
        raise SystemExit(0)
    try:
        values = settings.read(os.environ)
    except SettingsError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    configure(level=values.log_level)
    run(partial(main, values))
    return 0


async def run_until(stop: asyncio.Event, work: Coroutine[Any, Any, None]) -> None:
    """Run work until `stop` is set, then cancel it and wait; raise the error that ended it."""
    working, stopping = asyncio.create_task(work), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (working, stopping):
            task.cancel()
        await asyncio.wait((working, stopping))
    if not working.cancelled():
        working.result()


def run(main: Callable[[asyncio.Event], Awaitable[None]]) -> None:
    """Run a process until its main returns.

    Args:
        main: Called with an event that the first SIGTERM or SIGINT sets: the process must drain and
            return. A second signal cancels it.
    """
    with asyncio.Runner(loop_factory=_new_loop) as runner:
        runner.run(_run_until_signal(main))


async def _run_until_signal(main: Callable[[asyncio.Event], Awaitable[None]]) -> None:
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    task = asyncio.ensure_future(main(stopping))

    def on_signal() -> None:
        if stopping.is_set():
            task.cancel()
        stopping.set()

    loop.set_exception_handler(_handle_exception)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    try:
        await task
    except asyncio.CancelledError:
        if not stopping.is_set():
            raise


def _handle_exception(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log what a callback raised, unless uvloop wrote to a TLS connection that was closed before.

    It does so when a process stops while its peers still send.
    """
    error = context.get("exception")
    is_of_uvloop = isinstance(error, RuntimeError) and str(error).endswith(_CLOSED)
    if not (is_of_uvloop and context.get("message") in _TLS_MESSAGES):
        loop.default_exception_handler(context)


def tune_gc() -> None:
    """Exclude all present objects from garbage collection, and collect less often.

    Call it when the process is ready. Requests create few reference cycles, while a collection that
    includes all modules delays answers, by default after every 700 new objects.
    """
    # No collection before: a start leaves little garbage, and searching takes 5 % of its time.
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
