"""Run a process: event loop, signals, garbage collection."""

import asyncio
import gc
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress

_new_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
with suppress(ImportError):  # It does not exist for every platform.
    from uvloop import new_event_loop as _new_loop


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

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    try:
        await task
    except asyncio.CancelledError:
        if not stopping.is_set():
            raise


def tune_gc() -> None:
    """Exclude all present objects from garbage collection, and collect less often.

    Call it when the process is ready. Requests create few reference cycles, while a collection that
    includes all modules delays answers, by default after every 700 new objects.
    """
    # No collection before: a start leaves little garbage, and searching takes 5 % of its time.
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
