"""Read, watch and write a Lease.

Each write is conditional on the resourceVersion that was read, so that one of two writers fails.

Source: kubernetes/client-go, tools/leaderelection/leaderelection.go, for the meaning of all fields.
"""

from collections.abc import Awaitable, Callable, Mapping, Set
from dataclasses import dataclass
from types import MappingProxyType

import msgspec
from msgspec import Struct

from linkwise.runtime.kube.client import ApiError, Kube
from linkwise.runtime.kube.objects import AnnotatedObject, Key
from linkwise.runtime.kube.paths import api_path, path_below
from linkwise.runtime.kube.reflector import Reflector, WatchTimings


@dataclass(frozen=True, slots=True)
class LeaseTimings:
    """Durations with client-go's names and defaults [s]."""

    lease_duration: int = 15
    """Another process may acquire a Lease that has not changed for this time."""
    renew_deadline: float = 10
    """The holder stops leading after this time without a renewal; the rest of the duration is for
    stopping, and for clocks that differ in speed."""
    retry_period: float = 2
    """Between two renewals, and between two attempts to acquire."""

    def __post_init__(self) -> None:
        if not 0 < self.retry_period < self.renew_deadline < self.lease_duration:
            raise ValueError(f"retry < renew deadline < lease duration does not hold: {self}")


DEFAULT_TIMING = LeaseTimings()


class LeaseSpec(Struct, frozen=True, rename="camel"):
    """The fields of a Lease that are read."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    lease_transitions: int | None = None
    renew_time: str | None = None
    """Only compared for equality: it is the time of another clock."""


class Lease(AnnotatedObject, frozen=True):
    """A Lease at one resourceVersion."""

    spec: LeaseSpec = LeaseSpec()

    def annotation(self, key: str) -> str:
        """Return an annotation; empty where there is none."""
        return (self.metadata.annotations or {}).get(key, "")


_leases = msgspec.json.Decoder(Lease)


class LeaseStore:
    """One Lease on the API server."""

    def __init__(self, kube: Kube, namespace: str, name: str) -> None:
        """Refer to a Lease; it need not exist.

        Args:
            kube: Client of the API server, with the rights to list and watch the Lease for
                `watch`; to get and patch it and to create Leases for the writes.
            namespace: Of the Lease.
            name: Of the Lease.
        """
        self._kube = kube
        self.key: Key = namespace, name
        self.name = name
        self._collection = api_path("coordination.k8s.io/v1", "namespaces", namespace, "leases")
        self._path = path_below(self._collection, name)

    def watch(
        self, timing: LeaseTimings, on_change: Callable[[Mapping[Key, Lease], Set[Key]], None]
    ) -> Reflector[Lease]:
        """Return a reflector of the Lease; its caller runs it.

        Args:
            timing: Of the Lease.
            on_change: As of a reflector.
        """
        # Short, so that the end of a holder is noticed even if our connection broke with it.
        half, retry = timing.lease_duration / 2, timing.retry_period
        return Reflector(
            self._kube,
            self._collection,
            _leases.decode,
            field_selector=f"metadata.name={self.name}",
            on_change=on_change,
            timings=WatchTimings(watch=half, read_timeout=retry, max_backoff=retry),
        )

    def missing(self, watch: Reflector[Lease] | None) -> str | None:
        """Return why the holder is unknown; None once the Lease was listed."""
        if watch is not None and watch.synced.is_set():
            return None
        why = (watch and watch.error) or "the list is under way"
        return f"Lease {self.name} was not read yet: {why}"

    async def read(self) -> Lease | None:
        """Return the Lease; None if it does not exist.

        Raises:
            KubeError: The call failed.
        """
        return await self._kube.find(self._path, Lease)

    async def create(self, spec: dict[str, object], annotations: Mapping[str, str]) -> Lease | None:
        """Create the Lease; return None if it exists already.

        Raises:
            KubeError: The call failed; it may still be executed.
        """
        lease = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self.name, "annotations": annotations},
            "spec": spec,
        }
        return await _stored(self._kube.create(self._collection, lease, Lease))

    async def write(
        self,
        base: Lease,
        spec: dict[str, object],
        annotations: Mapping[str, str] = MappingProxyType({}),
    ) -> Lease | None:
        """Change fields of the Lease; return None if it was changed or deleted since it was read.

        Raises:
            KubeError: The call failed; it may still be executed.
        """
        metadata: dict[str, object] = {"resourceVersion": base.metadata.resource_version}
        if annotations:
            metadata["annotations"] = dict(annotations)
        change = {"metadata": metadata, "spec": spec}
        return await _stored(self._kube.patch(self._path, change, Lease, kind="merge"))


async def _stored(call: Awaitable[Lease]) -> Lease | None:
    try:
        return await call
    except ApiError as error:
        # Deleted; Conflict or AlreadyExists.
        if error.status in {404, 409}:
            return None
        raise
