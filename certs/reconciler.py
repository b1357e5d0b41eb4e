"""Reconcile loop: make a pass after each change, when something is due, and at intervals."""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

import msgspec
import structlog
from msgspec import Struct

from certs.ca_bundle import Target
from certs.observer import NotUsableError
from certs.outcome import Outcome
from linkwise.cluster.objects.webhook_configuration import Metadata
from linkwise.runtime.kube.client import Kube, KubeError
from linkwise.runtime.kube.reflector import Reflector, WatchTimings

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Timings:
    """Intervals between passes."""

    resync: float = 10
    """Longest interval [s]: timers do not count the time that a machine was suspended, and a watch
    may be broken."""
    pause: float = 0.2
    """Shortest interval [s]: another client may clear a `caBundle` again and again."""
    watch: WatchTimings = field(default_factory=lambda: WatchTimings(max_backoff=3))
    """Short retries, so that what was cleared during an outage is restored soon after it."""


_DEFAULT_TIMINGS = Timings()


class PartialObject(Struct, frozen=True):
    """An object of which only the metadata is read."""

    metadata: Metadata


class Pass(Protocol):
    """Brings all objects to their desired state, once."""

    async def reconcile(self) -> Outcome | None:
        """Make one pass; return None where another one must follow.

        Raises:
            KubeError: A read or a write failed.
            NotUsableError: A certificate cannot be used.
        """


class Reconciler:
    """Repeats passes, and keeps the result of the last one."""

    def __init__(
        self,
        kube: Kube,
        work: Pass,
        collection: str,
        secrets: Iterable[str],
        targets: Iterable[Target],
        timings: Timings = _DEFAULT_TIMINGS,
    ) -> None:
        """Prepare the watches; `run` starts them.

        Args:
            kube: Client of the API server.
            work: Makes a pass.
            collection: Path of the collection of Secrets.
            secrets: Names of the Secrets that are watched.
            targets: Webhook configurations that are watched.
            timings: Intervals between passes.
        """
        self._work, self._timings = work, timings
        self._changed = asyncio.Event()
        watched = [(collection, name) for name in secrets]
        watched += [(target.collection, target.name) for target in targets]
        self._watches = [
            # Only a change counts: a pass reads each object itself, in an order of its own.
            Reflector(
                kube,
                path,
                msgspec.json.Decoder(PartialObject).decode,
                field_selector=f"metadata.name={name}",
                on_change=lambda _items, _changed: self._changed.set(),
                timings=timings.watch,
            )
            for path, name in watched
        ]
        self.outcome: Outcome | None = None
        """The result of the last pass that read and wrote all it had to."""
        self.error: str | None = "certificates are not reconciled yet"
        """Why the last pass failed, or issued nothing; None where it succeeded."""

    def not_ready_reason(self) -> str | None:
        """Return why this process is not ready; None where it is."""
        return self.error

    async def run(self) -> None:
        """Reconcile until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for watch in self._watches:
                tasks.create_task(watch.run())
            tasks.create_task(self._run_loop())

    async def _run_loop(self) -> None:
        while True:
            self._changed.clear()
            interval = await self._pass()
            await asyncio.sleep(self._timings.pause)
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0, interval - self._timings.pause)):
                    await self._changed.wait()

    async def _pass(self) -> float:
        """Make one pass; return the longest time until the next [s]."""
        try:
            outcome = await self._work.reconcile()
        except (KubeError, NotUsableError) as error:
            if str(error) != self.error:
                _log.error("Reconcile failed", err=str(error))
            self.error = str(error)
            return self._timings.watch.max_backoff
        if outcome is None:
            return 0
        if outcome.problem and not (self.outcome and self.outcome.problem):
            _log.error("Reconcile failed", err=outcome.problem)
        self.outcome, self.error = outcome, outcome.problem
        resync = self._timings.resync
        return resync if outcome.pause is None else min(outcome.pause, resync)
