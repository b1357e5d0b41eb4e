"""Lead while another process of the same pod holds a Lease.

A scheduler and its extender must lead in the same pod: the scheduler holds the Lease, and this
process follows. It writes nothing. As in `election`, only the API server can refuse a late write.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Set
from math import inf

import structlog

from linkwise.runtime.kube.client import Kube
from linkwise.runtime.kube.election import Lead, cancel_and_wait
from linkwise.runtime.kube.lease import DEFAULT_TIMING, Lease, LeaseSpec, LeaseStore, LeaseTimings
from linkwise.runtime.kube.objects import Key
from linkwise.runtime.process.clock import wait_at_most

_log = structlog.get_logger()


class SidecarElection:
    """Leadership that follows the scheduler of the same pod."""

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
        """Create a follower that does not run yet.

        Args:
            kube: Client with the rights to get, list and watch the Lease.
            namespace: Of the Lease.
            name: Of the Lease.
            host: Host name of this pod: Kubernetes' components hold Leases as
                `<host>_<something>`. Two pods have different ones unless they use the host's
                network.
            timing: Of the scheduler's election, or shorter.
            clock: Monotonic [s].
        """
        self._store = LeaseStore(kube, namespace, name)
        self._host, self._timing, self._clock = host, timing, clock
        self._spec: LeaseSpec | None = None
        self._until = -inf
        self._changed = asyncio.Event()
        self._watch = self._store.watch(timing, self._on_change)

    @property
    def term(self) -> int | None:
        """The present term; None while another process may hold the Lease. See `Election.term`."""
        if self._spec is None or self._clock() >= self._until:
            return None
        return self._spec.lease_transitions or 0

    def missing(self) -> str | None:
        """Return why the holder is unknown; None once the Lease was listed."""
        return self._store.missing(self._watch)

    async def run(self, lead: Lead) -> None:
        """Lead while the scheduler holds the Lease, until `lead` ends or this is cancelled.

        Args:
            lead: Called with the term. It is cancelled and awaited when the scheduler has lost the
                Lease, or no renewal was seen in time. If it returns or raises by itself, so does
                `run`.
        """
        watching = asyncio.create_task(self._watch.run())
        try:
            while not await self._lead(lead, await self._wait_for_term()):
                pass
        finally:
            await cancel_and_wait(watching)

    async def _lead(self, lead: Lead, term: int) -> bool:
        """Lead for one term; return whether `lead` ended by itself."""
        _log.info("Following Lease", lease=self._store.name, term=term)
        leading, over = (
            asyncio.create_task(lead(term)),
            asyncio.create_task(self._wait_for_end(term)),
        )
        try:
            done, _ = await asyncio.wait((leading, over), return_when=asyncio.FIRST_COMPLETED)
        finally:
            await cancel_and_wait(leading)
            await cancel_and_wait(over)
        if not leading.cancelled():
            leading.result()
        return leading in done

    async def _wait_for_term(self) -> int:
        """Wait until the scheduler holds the Lease; return the term."""
        while (term := self.term) is None:
            self._changed.clear()
            await self._changed.wait()
        return term

    async def _wait_for_end(self, term: int) -> None:
        """Wait for the end of a term."""
        while self.term == term:
            self._changed.clear()
            await wait_at_most(self._until - self._clock(), self._changed)

    def _on_change(self, items: Mapping[Key, Lease], _changed: Set[Key]) -> None:
        found = items.get(self._store.key)
        before, self._spec = self._spec, found.spec if found else None
        if not self._is_held_here():
            self._until = -inf
        elif before is not None and self._spec != before:
            # The first record may be old: only a change proves that its holder is alive.
            self._until = self._clock() + self._timing.renew_deadline
        self._changed.set()

    def _is_held_here(self) -> bool:
        holder = (self._spec and self._spec.holder_identity) or ""
        return bool(self._host) and holder.rpartition("_")[0] == self._host
