"""Reconcile loop: renew due certificates; restore a cleared `caBundle`."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import msgspec
import structlog
from msgspec import Struct

from certs.bundle import Bundle
from certs.ca_bundle import Target, WebhookConfiguration, inject_ca_bundle
from certs.renewal import next_renewal
from certs.store import Metadata, Store
from runtime.kube.client import Kube, KubeError
from runtime.kube.reflector import Reflector, WatchTimings
from runtime.process.clock import Clock

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Timings:
    """Intervals between reconciles."""

    resync: float = 30
    """Longest interval [s]: timers do not count the time that a machine was suspended."""
    pause: float = 0.2
    """Shortest interval [s]: another client may clear a `caBundle` again and again."""
    watch: WatchTimings = field(default_factory=lambda: WatchTimings(max_backoff=3))
    """Short retries, so that what was cleared during an outage is restored soon after it."""


_DEFAULT_TIMINGS = Timings()


class PartialObject(Struct, frozen=True):
    """An object of which only the metadata is read."""

    metadata: Metadata


class Reconciler:
    """Keeps the Secret and the webhook configurations in their desired state."""

    def __init__(
        self,
        kube: Kube,
        store: Store,
        targets: Sequence[Target],
        clock: Clock,
        timings: Timings = _DEFAULT_TIMINGS,
    ) -> None:
        """Prepare the informers; `run` starts them.

        Args:
            kube: Client of the API server.
            store: The Secret.
            targets: Webhook configurations that get the bundle.
            clock: The wall clock [s since 1970].
            timings: Intervals between reconciles.
        """
        self._kube, self._store, self._clock, self._timings = kube, store, clock, timings
        self._changed = asyncio.Event()
        self._secret = Reflector(
            kube,
            store.collection,
            msgspec.json.Decoder(PartialObject).decode,
            field_selector=f"metadata.name={store.name}",
            on_change=lambda _items, _changed: self._changed.set(),
            timings=timings.watch,
        )
        self._configurations = {
            target: Reflector(
                kube,
                target.collection,
                msgspec.json.Decoder(WebhookConfiguration).decode,
                field_selector=f"metadata.name={target.name}",
                on_change=lambda _items, _changed: self._changed.set(),
                timings=timings.watch,
            )
            for target in targets
        }
        self.bundle: Bundle | None = None
        """The bundle of the last reconcile."""
        self.error: str | None = "certificates are not reconciled yet"
        """Why the last reconcile failed; None where it succeeded."""

    def configuration(self, target: Target) -> WebhookConfiguration | None:
        """Return the last known state of a webhook configuration; None where it does not exist."""
        return self._configurations[target].items.get(("", target.name))

    def trusted(self, target: Target) -> float | None:
        """Return 1 where a configuration trusts the CA of the leaf, else 0; None if unknown."""
        configuration = self.configuration(target)
        signer = self.bundle.signer if self.bundle else None
        if configuration is None or signer is None:
            return None
        return float(configuration.trusts(signer))

    def not_ready_reason(self) -> str | None:
        """Return why this process is not ready; None where it is."""
        if self.error is not None:
            return self.error
        unsynced = [
            target.resource
            for target, reflector in self._configurations.items()
            if not reflector.synced.is_set()
        ]
        return f"not listed yet: {', '.join(unsynced)}" if unsynced else None

    async def run(self) -> None:
        """Reconcile until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._secret.run())
            for reflector in self._configurations.values():
                tasks.create_task(reflector.run())
            tasks.create_task(self._run_loop())

    async def _run_loop(self) -> None:
        while True:
            self._changed.clear()
            due = self._clock() + self._timings.resync
            try:
                bundle = await self._reconcile()
                self.error = None
                due = min(due, next_renewal(bundle))
            except KubeError as error:
                if str(error) != self.error:
                    _log.error("Reconcile failed", err=str(error))
                self.error = str(error)
                due = self._clock() + self._timings.watch.max_backoff
            await asyncio.sleep(self._timings.pause)
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0, due - self._clock())):
                    await self._changed.wait()

    async def _reconcile(self) -> Bundle:
        self.bundle, reason = await self._store.ensure(self._clock())
        if reason is not None:
            _log.info("Certificate issued", reason=reason, expiry=int(self.bundle.leaf.expiry))
        for target in self._configurations:
            if (configuration := self.configuration(target)) is not None:
                await inject_ca_bundle(self._kube, target, configuration, self.bundle.trusted)
        return self.bundle
