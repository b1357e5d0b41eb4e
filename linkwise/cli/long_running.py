"""Commands that run until they are interrupted, not for less than a second as others do."""

import asyncio
import gc
import sys
from collections.abc import Awaitable, Callable

import structlog

from linkwise.manifest.value import InputError
from linkwise.runtime.process.lifecycle import run, tune_gc


def refuse_windows(command: str) -> None:
    """Refuse a command that needs signals and sockets of Unix; all others work on Windows, too.

    Raises:
        InputError: The system is Windows.
    """
    if sys.platform.startswith("win"):
        raise InputError(
            f"{command} runs on Linux and macOS. On Windows, run it in WSL; the other commands "
            "need no WSL."
        )


def run_until_interrupted(main: Callable[[asyncio.Event], Awaitable[None]]) -> None:
    """Run a command that watches a cluster.

    Args:
        main: As in `run`, which Ctrl-C ends.
    """
    # The command itself shows why a watch was lost, so the log of the libraries is not needed.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    # It is off, since other commands end before it helps.
    gc.enable()
    tune_gc()
    run(main)
