"""An event loop with a virtual clock: waiting for hours takes milliseconds."""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import TypeVar

T = TypeVar("T")

_LIMIT = 10_000
"""The longest virtual time of a test [s]."""


class _Skipping(selectors.DefaultSelector):
    """Does not wait; adds the timeout to its clock instead."""

    def __init__(self, passing):
        super().__init__()
        self.now = 0.0
        self._passing = passing

    def select(self, timeout=None):
        if timeout is None:
            raise RuntimeError("the loop waits without a timer: no event can end the test")
        if self.now > _LIMIT:
            raise RuntimeError(f"the test took more than {_LIMIT} s of virtual time")
        if timeout:
            self._passing()
            self.now += timeout
            self._passing()
        return super().select(0)


def run(main: Coroutine[None, None, T], passing: Callable[[], None] = lambda: None) -> T:
    """Run a coroutine that waits only for timers.

    Args:
        main: The coroutine.
        passing: Called before and after each step of the clock; no callback runs in between.
    """
    selector = _Skipping(passing)

    def loop():
        made = asyncio.SelectorEventLoop(selector)
        made.time = lambda: selector.now
        return made

    with asyncio.Runner(loop_factory=loop) as runner:
        return runner.run(main)
