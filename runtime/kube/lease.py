"""A Lease: who leads by it and for how long, as it is stored on the API server.

Every write is for the version that was seen, so that of two writers one wins.

Source: kubernetes/client-go, tools/leaderelection/leaderelection.go, for the meaning of all fields.
"""

from collections.abc import Awaitable, Callable, Mapping, Set
from dataclasses import dataclass

import msgspec
from msgspec import Struct

from runtime.kube.client import ApiError, Kube
from runtime.kube.reflector import Key, Reflector, WatchTimings


@dataclass(frozen=True, slots=True)
class LeaseTimings:
    """How long, under client-go's names and with its defaults [s]."""

    lease_duration: int = 15
    """After so long without a change another process may take it."""
    renew_deadline: float = 10
    """After so long without a renewal its holder stops; what is left of the duration is for
    stopping, and for clocks that run unevenly."""
    retry_period: float = 2
    """Between two renewals, and between two attempts."""

    def __post_init__(self) -> None:
        if not 0 < self.retry_period < self.renew_deadline < self.lease_duration:
            raise ValueError(f"retry < renew deadline < lease duration does not hold: {self}")


DEFAULT_TIMING = LeaseTimings()


class _Metadata(Struct, frozen=True, rename="camel"):
    resource_version: str = ""


class LeaseSpec(Struct, frozen=True, rename="camel"):
    """Who holds a Lease, as far as others care."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    lease_transitions: int | None = None
    renew_time: str | None = None
    """Only compared: its writer's clock is not ours."""


class Lease(Struct, frozen=True):
    """A Lease, in one version."""

    metadata: _Metadata = _Metadata()
    spec: LeaseSpec = LeaseSpec()


_leases = msgspec.json.Decoder(Lease)


class LeaseStore:
    """One Lease on the API server: watched, read, and written only as it was seen."""

    def __init__(self, kube: Kube, namespace: str, name: str) -> None:
        """Say which Lease.

        Args:
            kube: Whom to ask. It may list and watch the Lease to watch it; it may get and patch
                it, and create Leases, to write to it.
            namespace: Its own.
            name: Its own.
        """
        self._kube = kube
        self.key: Key = namespace, name
        self.name = name
        self._collection = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._path = f"{self._collection}/{name}"

    def watch(
        self, timing: LeaseTimings, on_change: Callable[[Mapping[Key, Lease], Set[Key]], None]
    ) -> Reflector[Lease]:
        """Return a watch of it, to be run.

        Args:
            timing: How long it lasts, and how often it is renewed.
            on_change: As of a reflector.
        """
        # A holder that dies together with our connection must not be missed for long.
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
        """Say why a watch, if there is one yet, does not tell who leads; None when it once did."""
        if watch is not None and watch.synced.is_set():
            return None
        why = (watch and watch.error) or "the list is under way"
        return f"Lease {self.name} was not read yet: {why}"

    async def read(self) -> Lease | None:
        """Return it as it is now; None when it is not there.

        Raises:
            KubeError: The API server cannot be asked, or refuses.
        """
        try:
            return await self._kube.get(self._path, Lease)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    async def create(self, spec: dict[str, object]) -> Lease | None:
        """Return it as it was created; None when somebody else was quicker.

        Raises:
            KubeError: The API server cannot be asked, or refuses; what was sent may still arrive.
        """
        made = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self.name},
            "spec": spec,
        }
        return await _stored(self._kube.create(self._collection, made, Lease))

    async def write(self, seen: Lease, spec: dict[str, object]) -> Lease | None:
        """Return it with these fields changed; None when it is no longer as it was seen.

        Raises:
            KubeError: The API server cannot be asked, or refuses; what was sent may still arrive.
        """
        change = {"metadata": {"resourceVersion": seen.metadata.resource_version}, "spec": spec}
        return await _stored(self._kube.patch(self._path, change, Lease, kind="merge"))


async def _stored(call: Awaitable[Lease]) -> Lease | None:
    try:
        return await call
    except ApiError as error:
        # Deleted since; Conflict or AlreadyExists.
        if error.status in {404, 409}:
            return None
        raise
