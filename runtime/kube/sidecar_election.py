"""Leadership that follows another process of the same host: it holds the Lease, and this one leads.

So both always lead in one place, as a scheduler and what it asks have to. Nothing is written. What
was said of terms in `election` holds here too: only the API server can refuse what is sent late.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Set
from contextlib import suppress
from math import inf

import structlog

from runtime.kube.client import Kube
from runtime.kube.election import Lead, cancel_and_wait
from runtime.kube.lease import DEFAULT_TIMING, Lease, LeaseSpec, LeaseStore, LeaseTimings
from runtime.kube.reflector import Key

_log = structlog.get_logger()


class SidecarElection:
    """One process's part where its neighbour takes part in the election."""

    def __init__(
        self,
        kube: Kube,
        namespace: str,
        name: str,
        host: str,
        timing: LeaseTimings = DEFAULT_TIMING,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Say what to follow, and where.

        Args:
            kube: Whom to ask. It may get, list and watch the Lease.
            namespace: Of the Lease.
            name: Of the Lease.
            host: This one's, and the neighbour's: Kubernetes' own components hold Leases as
                `<host>_<something>`. Two pods never have the same, without the host's network.
            timing: How long; as that of the neighbour, or shorter.
            clock: A monotonic one [s].
        """
        self._store = LeaseStore(kube, namespace, name)
        self._host, self._timing, self._clock = host, timing, clock
        self._spec: LeaseSpec | None = None
        self._until = -inf
        self._changed = asyncio.Event()
        self._watch = self._store.watch(timing, self._take_notice)

    @property
    def term(self) -> int | None:
        """The number of this tenure; None while others may hold the Lease. See `Election.term`."""
        if self._spec is None or self._clock() >= self._until:
            return None
        return self._spec.lease_transitions or 0

    def missing(self) -> str | None:
        """Say why it is not known who leads; None when it is."""
        return self._store.missing(self._watch)

    async def run(self, lead: Lead) -> None:
        """Lead whenever the neighbour holds the Lease, until `lead` ends or this is cancelled.

        Args:
            lead: Called with the term; it is cancelled, and waited for, when the neighbour has lost
                the Lease, or was not seen to renew it in time. If it returns or raises by itself,
                so does `run`.
        """
        watching = asyncio.create_task(self._watch.run())
        try:
            while not await self._lead(lead, await self._begun()):
                pass
        finally:
            await cancel_and_wait(watching)

    async def _lead(self, lead: Lead, term: int) -> bool:
        """Return whether `lead` ended by itself."""
        _log.info("Following Lease", lease=self._store.name, term=term)
        leading, over = asyncio.create_task(lead(term)), asyncio.create_task(self._over(term))
        try:
            done, _ = await asyncio.wait((leading, over), return_when=asyncio.FIRST_COMPLETED)
        finally:
            await cancel_and_wait(leading)
            await cancel_and_wait(over)
        if not leading.cancelled():
            leading.result()
        return leading in done

    async def _begun(self) -> int:
        """Return the term, once the neighbour holds the Lease."""
        while (term := self.term) is None:
            self._changed.clear()
            await self._changed.wait()
        return term

    async def _over(self, term: int) -> None:
        """Return once a term is over."""
        while self.term == term:
            self._changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._until - self._clock()):
                    await self._changed.wait()

    def _take_notice(self, items: Mapping[Key, Lease], _changed: Set[Key]) -> None:
        found = items.get(self._store.key)
        before, self._spec = self._spec, found.spec if found else None
        if not self._is_held_here():
            self._until = -inf
        elif before is not None and self._spec != before:
            # What was found at first may be old: only a change tells that its holder lives.
            self._until = self._clock() + self._timing.renew_deadline
        self._changed.set()

    def _is_held_here(self) -> bool:
        holder = (self._spec and self._spec.holder_identity) or ""
        return bool(self._host) and holder.rpartition("_")[0] == self._host
