"""Work that is repeated on an interval, and as soon as something has changed."""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from agent.binding.errors import BindError
from agent.driver.reading import DriverError, DriverReplacedError
from agent.kubelet.call import KubeletError
from linkwise.runtime.process.clock import wait_at_most
from linkwise.topology.machine import TopologyError

_PAUSE = 0.5
"""Shortest time between two runs [s]: many containers that start together are one change."""

_log = structlog.get_logger()


class Repeated:
    """Repeats one coroutine function. A run that fails is logged once, and repeated."""

    def __init__(self, name: str, work: Callable[[], Awaitable[None]], interval: float) -> None:
        """Start nothing yet.

        Args:
            name: Of the work, for the log.
            work: What is repeated.
            interval: Longest time between two runs [s].
        """
        self._name, self._work, self._interval = name, work, interval
        self._changed = asyncio.Event()
        self.error: str | None = None
        """Why the last run failed; None if it succeeded, or if there was none."""

    def wake(self) -> None:
        """Run soon."""
        self._changed.set()

    async def run(self) -> None:
        """Repeat until cancelled.

        Raises:
            DriverReplacedError: Only a new process can go on.
        """
        while True:
            self._changed.clear()
            try:
                await self._work()
            except DriverReplacedError:
                raise
            except (BindError, DriverError, KubeletError, OSError, TopologyError) as error:
                if str(error) != self.error:
                    _log.warning("Node not reconciled", work=self._name, err=str(error))
                self.error = str(error)
            else:
                self.error = None
            await asyncio.sleep(_PAUSE)
            await wait_at_most(self._interval, self._changed)
