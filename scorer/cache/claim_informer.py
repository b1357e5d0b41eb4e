"""Watch the devices that resource claims hold (DRA), where the API is served."""

import asyncio
from collections.abc import Callable, Mapping, Set
from typing import TypeVar

import msgspec
import structlog
from msgspec import Raw

from cluster.nodes.device_claims import (
    ClaimedGPUs,
    ClaimObject,
    Device,
    SliceDevices,
    SliceObject,
    claimed_gpus,
)
from runtime.kube.client import ApiError, Ignored, Kube, KubeError
from runtime.kube.decode import decode
from runtime.kube.objects import Key
from runtime.kube.reflector import Reflector
from scorer.cache.slice_budget import SliceBudget

_API = "/apis/resource.k8s.io/v1"
_RETRY = 1.0
"""Before the API server is asked again whether it serves the API [s]."""

T = TypeVar("T")

_claims = msgspec.json.Decoder(ClaimObject)
_slices = msgspec.json.Decoder(SliceObject)
_log = structlog.get_logger()


class ClaimInformer:
    """The GPUs that claims hold, by node."""

    def __init__(self, kube: Kube, on_change: Callable[[Mapping[str, ClaimedGPUs]], None]) -> None:
        """Prepare the watches.

        Args:
            kube: The API server.
            on_change: Takes the GPUs by node, whenever they changed.
        """
        self._kube, self._on_change = kube, on_change
        self._held: dict[Key, frozenset[Device]] = {}
        """By claim with GPUs. Tenants can create any number of claims without."""
        self._budget = SliceBudget()
        self._slices: dict[Key, SliceDevices] = {}
        self.claims: Reflector[frozenset[Device]] = Reflector(
            kube, f"{_API}/resourceclaims", _read_claim, on_change=self._claims_changed
        )
        self.slices: Reflector[SliceDevices] = Reflector(
            kube, f"{_API}/resourceslices", self._read_slice, on_change=self._slices_changed
        )
        self.synced = asyncio.Event()
        """All is listed, or the API is not served."""

    @property
    def error(self) -> str:
        """What `synced` waits for."""
        errors = (reflector.error for reflector in (self.claims, self.slices))
        return next(filter(None, errors), "the list is under way")

    async def run(self) -> None:
        """Keep the GPUs up to date until cancelled; return where the API is not served."""
        served = await self._is_served()
        while served is None:
            await asyncio.sleep(_RETRY)
            served = await self._is_served()
        if not served:
            self.synced.set()
            return
        async with asyncio.TaskGroup() as group:
            for reflector in (self.claims, self.slices):
                group.create_task(reflector.run())
            for reflector in (self.claims, self.slices):
                await reflector.synced.wait()
            self.synced.set()

    async def _is_served(self) -> bool | None:
        """Return whether the API server has the API; None: it did not say."""
        try:
            await self._kube.get(_API, Ignored)
        except KubeError as error:
            if isinstance(error, ApiError) and error.status == 404:
                return False
            _log.warning("Lost watch", resource=_API, err=str(error))
            return None
        return True

    def _read_slice(self, raw: Raw) -> SliceDevices | None:
        """Return the GPUs of a slice; None for those of other devices, and beyond the limit."""
        found = decode(raw, _slices)
        devices = found.devices
        if devices is None or not self._budget.take(devices.node, found.metadata.name):
            return None
        return devices

    def _claims_changed(self, items: Mapping[Key, frozenset[Device]], changed: Set[Key]) -> None:
        if _update(self._held, items, changed):
            self._on_change(claimed_gpus(self._held.values(), self._slices.values()))

    def _slices_changed(self, items: Mapping[Key, SliceDevices], changed: Set[Key]) -> None:
        self._budget.confirm((devices.node, name) for (_, name), devices in items.items())
        if _update(self._slices, items, changed):
            self._on_change(claimed_gpus(self._held.values(), self._slices.values()))


def _update(kept: dict[Key, T], items: Mapping[Key, T], changed: Set[Key]) -> bool:
    """Copy changed items; return whether anything differs."""
    differs = False
    for key in changed:
        item, before = items.get(key), kept.pop(key, None)
        if item is not None:
            kept[key] = item
        differs |= item != before
    return differs


def _read_claim(raw: Raw) -> frozenset[Device] | None:
    """Return the GPUs of a claim; None for all others, so that these are not kept."""
    return decode(raw, _claims).devices or None
