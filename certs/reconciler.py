"""Keeping it so: what is due is made, what was cleared is written again, for ever."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

import msgspec
import structlog
from msgspec import Struct

from certs.bundle import Bundle
from certs.ca_bundle import Registration, Target, inject
from certs.renewal import due_next
from certs.store import Metadata, Store
from runtime.kube.client import Kube, KubeError
from runtime.kube.reflector import Reflector, WatchTimings
from runtime.process.clock import Clock

_LOOK = 30.0
"""The clock is read, and the Secret too, at least so often [s]; a suspended machine's timers do not
count the time it slept."""
_SOON = WatchTimings(longest=3)
"""While the API server cannot be asked: what was cleared meanwhile is written soon after."""
_PAUSE = 0.2
"""Between two looks, so that somebody who clears again and again is answered in measure [s]."""

_log = structlog.get_logger()


class Version(Struct, frozen=True):
    """An object of which only the version is of interest."""

    metadata: Metadata


class Reconciler:
    """What was seen last, and the task that keeps it as it should be."""

    def __init__(self, kube: Kube, store: Store, targets: Sequence[Target], clock: Clock) -> None:
        """Say what is kept.

        Args:
            kube: Whom to ask.
            store: The Secret.
            targets: The registrations that follow it.
            clock: The wall clock [s since 1970].
        """
        self._kube, self._store, self._clock = kube, store, clock
        self._changed = asyncio.Event()
        self._secret = Reflector(
            kube,
            store.collection,
            msgspec.json.Decoder(Version).decode,
            field_selector=f"metadata.name={store.name}",
            on_change=lambda _items, _changed: self._changed.set(),
            pace=_SOON,
        )
        self._registrations = {
            target: Reflector(
                kube,
                target.collection,
                msgspec.json.Decoder(Registration).decode,
                field_selector=f"metadata.name={target.name}",
                on_change=lambda _items, _changed: self._changed.set(),
                pace=_SOON,
            )
            for target in targets
        }
        self.bundle: Bundle | None = None
        """As it was stored last."""
        self.error: str | None = "nothing has been done yet"
        """Why the last look did not end well; None when it did."""

    def found(self, target: Target) -> Registration | None:
        """Return a registration as it was seen last; None where there is none."""
        return self._registrations[target].items.get(("", target.name))

    def trusted(self, target: Target) -> float | None:
        """Return 1 when a registration trusts who signed the leaf, 0 when not, None without one."""
        registration = self.found(target)
        signer = self.bundle.signer if self.bundle else None
        if registration is None or signer is None:
            return None
        return float(registration.trusts(signer))

    def missing(self) -> str | None:
        """Return why this process is not ready; None when it is."""
        if self.error is not None:
            return self.error
        unseen = [
            target.resource
            for target, seen in self._registrations.items()
            if not seen.synced.is_set()
        ]
        return f"not listed yet: {', '.join(unseen)}" if unseen else None

    async def run(self) -> None:
        """Keep it so until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._secret.run())
            for reflector in self._registrations.values():
                tasks.create_task(reflector.run())
            tasks.create_task(self._keep())

    async def _keep(self) -> None:
        while True:
            self._changed.clear()
            due = self._clock() + _LOOK
            try:
                bundle = await self._look()
                self.error = None
                due = min(due, due_next(bundle))
            except KubeError as error:
                if str(error) != self.error:
                    _log.error("Could not keep certificates", err=str(error))
                self.error = str(error)
                due = self._clock() + _SOON.longest
            await asyncio.sleep(_PAUSE)
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0, due - self._clock())):
                    await self._changed.wait()

    async def _look(self) -> Bundle:
        self.bundle, reason = await self._store.ensure(self._clock())
        if reason is not None:
            _log.info("Made certificate", reason=reason, expiry=int(self.bundle.leaf.expiry))
        for target in self._registrations:
            if (found := self.found(target)) is not None:
                await inject(self._kube, target, found, self.bundle.trusted)
        return self.bundle
