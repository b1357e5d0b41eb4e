"""Leader election by a Lease, as in Kubernetes' own components.

1. A candidate watches the Lease, and acquires it when it has no holder, when its holder has ended
   (`holder_watch`), or when it has not changed for the duration that its holder wrote.
2. The holder renews it, and stops leading if that did not succeed within a shorter time.
3. A holder that ends releases it, so that the next one need not wait.

Each process measures with its own monotonic clock: the holder from before it sent a renewal, a
candidate from after it saw one. Times that other processes wrote are not used.

A process that was suspended and resumed may still send writes of its earlier term. Only the API
server can refuse them: the term grows with each holder, so a write that carries its term can be
recognized as late.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from math import inf
from typing import Any, TypeAlias

import structlog

from linkwise.runtime.kube.client import Kube, KubeError
from linkwise.runtime.kube.holder_watch import HolderWatch
from linkwise.runtime.kube.lease import DEFAULT_TIMING, Lease, LeaseSpec, LeaseStore, LeaseTimings
from linkwise.runtime.kube.reflector import Reflector
from linkwise.runtime.process.clock import now_rfc3339, wait_at_most

Lead: TypeAlias = Callable[[int], Coroutine[Any, Any, None]]

_log = structlog.get_logger()


class Election:
    """A candidate in the election of a leader."""

    def __init__(  # noqa: PLR0913 - the Lease, this process and its address.
        self,
        kube: Kube,
        namespace: str,
        name: str,
        identity: str,
        timing: LeaseTimings = DEFAULT_TIMING,
        *,
        address: tuple[str, str] = ("", ""),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create a candidate that does not run yet.

        Args:
            kube: Client with the rights to get, list, watch and patch the Lease, and to create
                Leases.
            namespace: Of the Lease.
            name: Of the Lease.
            identity: Unique to this process: also its predecessor on the same host has another.
            timing: Of the Lease.
            address: An annotation, and the address (`host:port`) of this process that a holder
                writes there together with its name. Empty: its end is not noticed.
            clock: Monotonic [s].
        """
        self._store = LeaseStore(kube, namespace, name)
        self._identity = identity
        self._annotation, self._address = address
        self._timing = timing
        self._clock = clock
        self._term = 0
        self._until = -inf
        self._held = Lease()
        """The last version that this process wrote."""
        self._watch: Reflector[Lease] | None = None
        self._highest = -1
        # Half of the deadline leaves time for a second call on another connection.
        self._call_timeout = timing.renew_deadline / 2

    @property
    def term(self) -> int | None:
        """The present term; None while another process may hold the Lease.

        The result is valid at this moment only: read it again after each wait.
        """
        return self._term if self._clock() < self._until else None

    def missing(self) -> str | None:
        """Return why the holder is unknown; None once the Lease was listed."""
        return self._store.missing(self._watch)

    async def run(self, lead: Lead) -> None:
        """Lead while this process holds the Lease, until `lead` ends or this is cancelled.

        When it is cancelled, it cancels `lead`, waits for its end, and releases the Lease: await
        it.

        Args:
            lead: Called with the term, which grows each time. It is cancelled when the Lease is
                lost, and must stop writing immediately; after its end this process is a candidate
                again. While `lead` ends because `run` was cancelled, the Lease is still renewed.
                If it returns or raises by itself, so does `run`.
        """
        while not await self._lead(lead, await self._acquire()):
            pass

    async def _lead(self, lead: Lead, term: int) -> bool:
        """Lead for one term; return whether `lead` ended by itself."""
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
        """Wait until the Lease is acquired; return the term."""
        changed = asyncio.Event()
        watch = self._watch = self._store.watch(
            self._timing, lambda _items, _changed: changed.set()
        )
        watching, holder = asyncio.create_task(watch.run()), HolderWatch(changed.set)
        try:
            await watch.synced.wait()
            return await self._wait_and_take(watch, changed, holder)
        finally:
            holder.close()
            await cancel_and_wait(watching)

    async def _wait_and_take(
        self, watch: Reflector[Lease], changed: asyncio.Event, holder: HolderWatch
    ) -> int:
        seen: LeaseSpec | None = None
        seen_at, error = -inf, ""
        while True:
            changed.clear()
            found = watch.items.get(self._store.key)
            if found is None or found.spec != seen:
                seen, seen_at = found.spec if found else None, self._clock()
            if seen is not None:
                self._highest = max(self._highest, seen.lease_transitions or 0)
            self._follow(holder, found)
            left = 0.0 if holder.has_ended else seen_at + self._remaining_hold(seen) - self._clock()
            if left <= 0:
                left = self._timing.retry_period
                try:
                    async with asyncio.timeout(self._call_timeout):
                        if await self._take(found):
                            return self._term
                except (KubeError, TimeoutError) as failure:
                    if error != (error := _message(failure)):
                        _log.warning("Could not take Lease", lease=self._store.name, err=error)
            await wait_at_most(left, changed)

    def _remaining_hold(self, spec: LeaseSpec | None) -> float:
        """Return for how long an unchanged record prevents another holder [s]."""
        # A record of our own is left from a call without an answer, or from a lost term.
        if spec is None or spec.holder_identity in {None, "", self._identity}:
            return 0
        return spec.lease_duration_seconds or self._timing.lease_duration

    def _follow(self, holder: HolderWatch, found: Lease | None) -> None:
        """Watch the holder of the Lease, if it has one with an address."""
        name = found.spec.holder_identity if found else None
        if found is None or not name or not (address := found.annotation(self._annotation)):
            holder.close()
        else:
            holder.follow(name, found.spec.lease_transitions or 0, address)

    async def _take(self, found: Lease | None) -> bool:
        """Try to acquire the Lease; return False if another process was faster."""
        # Terms grow even if the Lease was deleted.
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
        # With the name in one write, so that the address is never that of another holder.
        address = {self._annotation: self._address} if self._annotation else {}
        taken = await (
            store.create(spec, address) if found is None else store.write(found, spec, address)
        )
        if taken is None:
            return False
        self._held = taken
        self._term = self._highest = term
        self._until = sent + self._timing.renew_deadline
        _log.info("Acquired Lease", lease=self._store.name, term=term)
        return True

    async def _renew(self) -> None:
        """Renew the Lease until it is lost."""
        while (left := self._until - self._clock()) > 0:
            await asyncio.sleep(min(left, self._timing.retry_period))
            sent = self._clock()
            try:
                async with asyncio.timeout(min(self._until - sent, self._call_timeout)):
                    ours = await self._write_ours({"renewTime": now_rfc3339()})
            except (KubeError, TimeoutError) as error:
                _log.warning("Could not renew Lease", lease=self._store.name, err=_message(error))
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
            _log.warning("Could not release Lease", lease=self._store.name, err=_message(error))

    async def _write_ours(self, spec: dict[str, object]) -> bool:
        """Write to the Lease; return False if it is not of this term any more."""
        while (written := await self._store.write(self._held, spec)) is None:
            # Another process changed it, or a call of ours that had no answer.
            found = await self._store.read()
            if found is None or not self._is_ours(found.spec):
                return False
            self._held = found
        self._held = written
        return True

    def _is_ours(self, spec: LeaseSpec) -> bool:
        return (spec.holder_identity, spec.lease_transitions) == (self._identity, self._term)


async def cancel_and_wait(task: asyncio.Task[None]) -> None:
    """Cancel a task, and wait for its end."""
    task.cancel()
    await asyncio.wait((task,))


def _message(error: Exception) -> str:
    return str(error) or type(error).__name__
