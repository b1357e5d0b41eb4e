"""An event loop whose clock goes on by itself: what waits for hours takes milliseconds."""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import TypeVar

T = TypeVar("T")

_LIMIT = 10_000
"""No test takes longer [s]."""


class _Skipping(selectors.DefaultSelector):
    """Never waits: the time it would take is only counted."""

    def __init__(self, passing):
        super().__init__()
        self.now = 0.0
        self._passing = passing

    def select(self, timeout=None):
        if timeout is None:
            raise RuntimeError("nothing is left that could ever happen")
        if self.now > _LIMIT:
            raise RuntimeError("it goes on for ever")
        if timeout:
            self._passing()
            self.now += timeout
            self._passing()
        return super().select(0)


def run(main: Coroutine[None, None, T], passing: Callable[[], None] = lambda: None) -> T:
    """Run a coroutine that waits for nothing outside.

    Args:
        main: What is run.
        passing: Called before time passes, and after: between two calls nothing happens.
    """
    selector = _Skipping(passing)

    def loop():
        made = asyncio.SelectorEventLoop(selector)
        made.time = lambda: selector.now
        return made

    with asyncio.Runner(loop_factory=loop) as runner:
        return runner.run(main)
