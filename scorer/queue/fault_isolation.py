"""Unforeseen exceptions in the work on one unit, which end neither the leader nor other work.

Each is counted and logged with its traceback, and the unit backs off at that stage.
"""

import asyncio
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from types import TracebackType

import structlog

from scorer.fence import LeadershipLost
from scorer.metrics import Metrics, Stage
from scorer.queue.backoff import Backoff

FAULT = "a fault of the scorer, whose log shows it: please report it"
_FIRST, _LONGEST = 1.0, 600.0
"""Before a stage is tried again with the same unit, the first time and at most [s]."""

_log = structlog.get_logger()


class FaultIsolation:
    """Contains faults of ours, for one term of the Lease."""

    def __init__(self, metrics: Metrics, woken: Callable[[], None]) -> None:
        """Start without faults.

        Args:
            metrics: Counts them.
            woken: Called when a stage may be tried again.
        """
        self._metrics = metrics
        self._backoff = Backoff(_FIRST, _LONGEST, woken)

    def contained(self, stage: Stage, unit: Hashable) -> "IsolatedBlock":
        """Return a context manager that raises only `LeadershipLost` and cancellation.

        Args:
            stage: What its block does.
            unit: What it works on: a gang, a pod, an owner or a node.
        """
        return IsolatedBlock(self, stage, unit)

    def is_resting(self, stage: Stage, unit: Hashable) -> bool:
        """Tell whether it is too soon to try a stage again with a unit."""
        return (stage, unit) in self._backoff

    async def rested(self, stage: Stage, unit: Hashable) -> None:
        """Wait for as long as a stage is not tried again with a unit."""
        await asyncio.sleep(self._backoff.pause((stage, unit)))

    def note(self, stage: Stage, unit: Hashable, error: Exception) -> None:
        """Note that a stage failed, so that it is not tried again with the unit for a while."""
        self._metrics.failed(stage)
        pause = self._backoff.begin((stage, unit))
        _log.error(
            "Work on one unit failed", stage=stage, unit=str(unit), again=pause, exc_info=error
        )

    def forget(self, stage: Stage, unit: Hashable) -> None:
        """Note that a stage went well."""
        self._backoff.forget((stage, unit))


@dataclass(frozen=True, slots=True)
class IsolatedBlock:
    """A block whose unforeseen exceptions are noted and go no further."""

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
            self.faults.forget(self.stage, self.unit)
            return False
        if isinstance(error, LeadershipLost) or not isinstance(error, Exception):
            return False
        self.faults.note(self.stage, self.unit, error)
        return True
