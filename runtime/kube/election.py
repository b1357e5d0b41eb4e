"""Which of several processes leads: the holder of a Lease, as among Kubernetes' own components.

1. Who waits watches the record, and takes it when nobody holds it, or when it has not changed for
   as long as its holder asked for.
2. Who holds it renews it, and stops by itself when that did not succeed in a shorter time.
3. Who ends gives it up, so that the next one need not wait.

Each measures by its own monotonic clock: a holder from before it sent a renewal, who waits from
after it saw one. Times that others wrote are not read.

A process that was stopped and continued may still send what it had decided before. Only the API
server can refuse that: the term grows with every holder, so a write that tells its term is known to
be late.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from math import inf
from typing import Any, TypeAlias

import structlog

from runtime.kube.client import Kube, KubeError
from runtime.kube.lease import DEFAULT_TIMING, Lease, LeaseSpec, LeaseStore, LeaseTimings
from runtime.kube.reflector import Reflector
from runtime.process.clock import now_rfc3339

Lead: TypeAlias = Callable[[int], Coroutine[Any, Any, None]]

_log = structlog.get_logger()


class Election:
    """One process's part in the election of a leader."""

    def __init__(
        self,
        kube: Kube,
        namespace: str,
        name: str,
        identity: str,
        timing: LeaseTimings = DEFAULT_TIMING,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Say what to hold, and as whom.

        Args:
            kube: Whom to ask. It may get, list, watch and patch the Lease, and create Leases.
            namespace: Of the Lease.
            name: Of the Lease.
            identity: No other process's, nor that of this one's predecessor on the same host.
            timing: How long.
            clock: A monotonic one [s].
        """
        self._store = LeaseStore(kube, namespace, name)
        self._identity = identity
        self._timing = timing
        self._clock = clock
        self._term = 0
        self._until = -inf
        self._held = Lease()
        """As it was last seen to be ours."""
        self._watch: Reflector[Lease] | None = None
        self._highest = -1
        # Half a deadline leaves time for a second call, on another connection.
        self._call_timeout = timing.renew_deadline / 2

    @property
    def term(self) -> int | None:
        """The number of this tenure; None while others may hold the Lease.

        The clock decides, at this moment: ask again after everything that took time.
        """
        return self._term if self._clock() < self._until else None

    def missing(self) -> str | None:
        """Say why it is not known who leads; None when it is, or was until the watch was lost."""
        return self._store.missing(self._watch)

    async def run(self, lead: Lead) -> None:
        """Lead whenever the Lease is ours, until `lead` ends or this is cancelled.

        Cancelled, it cancels `lead`, waits for its end, and gives the Lease up: wait for it.

        Args:
            lead: Called with the term, which is greater each time. When the Lease is lost it is
                cancelled, and has to stop writing at once; when it has ended, the wait for the
                Lease begins anew. While it ends at our own wish, the Lease is still renewed. If
                it returns or raises by itself, so does `run`.
        """
        while not await self._lead(lead, await self._acquire()):
            pass

    async def _lead(self, lead: Lead, term: int) -> bool:
        """Return whether `lead` ended by itself."""
        leading, renewing = asyncio.create_task(lead(term)), asyncio.create_task(self._renew())
        try:
            done, _ = await asyncio.wait((leading, renewing), return_when=asyncio.FIRST_COMPLETED)
        finally:
            await cancel_and_wait(leading)
            await cancel_and_wait(renewing)
            self._until = -inf
            await self._release()
        for task in (renewing, leading):
            if not task.cancelled():
                task.result()
        return leading in done

    async def _acquire(self) -> int:
        """Return the term, once it is ours."""
        changed = asyncio.Event()
        watch = self._watch = self._store.watch(
            self._timing, lambda _items, _changed: changed.set()
        )
        watching = asyncio.create_task(watch.run())
        try:
            await watch.synced.wait()
            return await self._taken(watch, changed)
        finally:
            await cancel_and_wait(watching)

    async def _taken(self, watch: Reflector[Lease], changed: asyncio.Event) -> int:
        seen: LeaseSpec | None = None
        seen_at, error = -inf, ""
        while True:
            changed.clear()
            found = watch.items.get(self._store.key)
            if found is None or found.spec != seen:
                seen, seen_at = found.spec if found else None, self._clock()
            if seen is not None:
                self._highest = max(self._highest, seen.lease_transitions or 0)
            left = seen_at + self._holds(seen) - self._clock()
            if left <= 0:
                left = self._timing.retry_period
                try:
                    async with asyncio.timeout(self._call_timeout):
                        if await self._take(found):
                            return self._term
                except (KubeError, TimeoutError) as failure:
                    if error != (error := _said(failure)):
                        _log.warning("Could not take Lease", lease=self._store.name, err=error)
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await changed.wait()

    def _holds(self, spec: LeaseSpec | None) -> float:
        """Return how long a record that does not change keeps us from taking the Lease [s]."""
        # Our own, while we do not lead, is what a call without an answer left, or a lost tenure.
        if spec is None or spec.holder_identity in {None, "", self._identity}:
            return 0
        return spec.lease_duration_seconds or self._timing.lease_duration

    async def _take(self, found: Lease | None) -> bool:
        """Return whether it is ours; not, when somebody else was quicker."""
        # Even when the Lease was deleted, no term that was seen comes again.
        term = self._highest + 1
        now, sent = now_rfc3339(), self._clock()
        spec = {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": self._timing.lease_duration,
            "leaseTransitions": term,
            "acquireTime": now,
            "renewTime": now,
        }
        store = self._store
        taken = await (store.create(spec) if found is None else store.write(found, spec))
        if taken is None:
            return False
        self._held = taken
        self._term = self._highest = term
        self._until = sent + self._timing.renew_deadline
        _log.info("Acquired Lease", lease=self._store.name, term=term)
        return True

    async def _renew(self) -> None:
        """Return when it is lost."""
        while (left := self._until - self._clock()) > 0:
            await asyncio.sleep(min(left, self._timing.retry_period))
            sent = self._clock()
            try:
                async with asyncio.timeout(min(self._until - sent, self._call_timeout)):
                    ours = await self._write_ours({"renewTime": now_rfc3339()})
            except (KubeError, TimeoutError) as error:
                _log.warning("Could not renew Lease", lease=self._store.name, err=_said(error))
                continue
            self._until = sent + self._timing.renew_deadline if ours else -inf
        _log.warning("Lost Lease", lease=self._store.name, term=self._term)

    async def _release(self) -> None:
        now = now_rfc3339()
        spec = {
            "holderIdentity": "",
            "leaseDurationSeconds": 1,
            "acquireTime": now,
            "renewTime": now,
        }
        try:
            async with asyncio.timeout(self._timing.retry_period):
                if await self._write_ours(spec):
                    _log.info("Released Lease", lease=self._store.name, term=self._term)
        except (KubeError, TimeoutError) as error:
            _log.warning("Could not release Lease", lease=self._store.name, err=_said(error))

    async def _write_ours(self, spec: dict[str, object]) -> bool:
        """Write to the Lease as long as it is of this tenure; return whether it is."""
        while (written := await self._store.write(self._held, spec)) is None:
            # It is another version: somebody else's, or that of a call of ours without an answer.
            found = await self._store.read()
            if found is None or not self._is_ours(found.spec):
                return False
            self._held = found
        self._held = written
        return True

    def _is_ours(self, spec: LeaseSpec) -> bool:
        return (spec.holder_identity, spec.lease_transitions) == (self._identity, self._term)


async def cancel_and_wait(task: asyncio.Task[None]) -> None:
    """Cancel a task, and wait until it has ended."""
    task.cancel()
    await asyncio.wait((task,))


def _said(error: Exception) -> str:
    return str(error) or type(error).__name__
