"""A process's life: its loop, its signals, its garbage."""

import asyncio
import gc
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress

_new_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
with suppress(ImportError):  # It is not made for every platform.
    from uvloop import new_event_loop as _new_loop


def run(main: Callable[[asyncio.Event], Awaitable[None]]) -> None:
    """Run a process until its main returns.

    Args:
        main: Gets an event that is set by the first SIGTERM or SIGINT: time to drain. The second
            one cancels it.
    """
    with asyncio.Runner(loop_factory=_new_loop) as runner:
        runner.run(_until_told(main))


async def _until_told(main: Callable[[asyncio.Event], Awaitable[None]]) -> None:
    loop = asyncio.get_running_loop()
    told = asyncio.Event()
    task = asyncio.ensure_future(main(told))

    def tell() -> None:
        if told.is_set():
            task.cancel()
        told.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, tell)
    try:
        await task
    except asyncio.CancelledError:
        if not told.is_set():
            raise


def tune_gc() -> None:
    """Take what was made at start out of garbage collection, and collect less often.

    Call it when the process is ready to serve: requests make few cycles, and looking for them among
    all modules at every 700th object is what slow answers are made of.
    """
    # Not collected before: a start leaves next to no garbage, and looking takes a 20th of it.
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
