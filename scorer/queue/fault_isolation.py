"""Isolation of unforeseen exceptions, so that one unit cannot end the leader or other work.

Each is counted and logged with its traceback, and the unit backs off at that stage.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from types import TracebackType
from typing import TypeVar

import structlog

from linkwise.runtime.process.backoff import Backoff
from scorer.fence import LeadershipLost
from scorer.metrics import Metrics, Stage

T = TypeVar("T", bound=Hashable)

FAULT = "a fault of the scorer, whose log shows it: please report it"
_RETRY_MAX = 600.0
"""The longest delay before a stage is tried again with the same unit [s]."""

_log = structlog.get_logger()


class FaultIsolation:
    """The stages that failed, for one term of the Lease."""

    def __init__(
        self, metrics: Metrics, on_ready: Callable[[], None], *, retry: float = 1.0
    ) -> None:
        """Start without faults.

        Args:
            metrics: Counts faults.
            on_ready: Called when a stage may be tried again.
            retry: First delay before a stage is tried again with the same unit [s].
        """
        self._metrics = metrics
        self._backoff = Backoff(retry, _RETRY_MAX, on_ready)

    def isolate(self, stage: Stage, unit: Hashable) -> "IsolatedBlock":
        """Return a context manager that raises only `LeadershipLost` and cancellation.

        Args:
            stage: The work in its block.
            unit: What the work is for: a gang, a pod, an owner or a node.
        """
        return IsolatedBlock(self, stage, unit)

    async def repeat(
        self, stage: Stage, work: Callable[[], Awaitable[None]], interval: float
    ) -> None:
        """Do work at an interval [s] until cancelled, also after it raised."""
        while True:
            with self.isolate(stage, ""):
                await work()
            await asyncio.sleep(interval)

    def work_off(self, stage: Stage, units: set[T], work: Callable[[T], None]) -> None:
        """Do the work for each unit that does not back off; remove it unless the work raised."""
        for unit in list(units):
            if not self.is_backing_off(stage, unit):
                with self.isolate(stage, unit):
                    work(unit)
                    units.discard(unit)

    def is_backing_off(self, stage: Stage, unit: Hashable) -> bool:
        """Return whether it is too early to try a stage again with a unit."""
        return (stage, unit) in self._backoff

    def fail(self, stage: Stage, unit: Hashable, error: Exception) -> None:
        """Count and log a fault, and let the unit back off at this stage."""
        self.count(stage, unit, error, self._backoff.start((stage, unit)))

    def count(self, stage: Stage, unit: Hashable, error: Exception, delay: float | None) -> None:
        """Count and log a fault.

        Args:
            stage: The work that raised.
            unit: What it was for.
            error: What it raised.
            delay: Until it is tried again [s]; None: it is not.
        """
        self._metrics.failed(stage)
        _log.error(
            "Work on one unit failed",
            stage=stage,
            unit=str(unit),
            retry_after=delay,
            exc_info=error,
        )

    def succeed(self, stage: Stage, unit: Hashable) -> None:
        """Reset the backoff of a stage and a unit."""
        self._backoff.reset((stage, unit))


@dataclass(frozen=True, slots=True)
class IsolatedBlock:
    """A block whose unforeseen exceptions are recorded and suppressed."""

    faults: FaultIsolation
    stage: Stage
    unit: Hashable

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> bool:
        if error is None:
            self.faults.succeed(self.stage, self.unit)
            return False
        if isinstance(error, LeadershipLost) or not isinstance(error, Exception):
            return False
        self.faults.fail(self.stage, self.unit, error)
        return True
