"""Read all objects, and write Secrets: a write succeeds only if the Secret has not changed."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from certs.authorities import Authorities, read_authorities, write_authorities
from certs.ca_bundle import Target
from certs.leaf import Leaf, Server, read_leaf, write_leaf
from certs.pem import ContentError
from certs.snapshot import Snapshot, Stored
from linkwise.cluster.keys import ROTATE_CA
from linkwise.cluster.objects.webhook_configuration import Secret, WebhookConfiguration
from linkwise.runtime.kube.client import ApiError, Kube
from linkwise.runtime.kube.paths import api_path, path_below

CA_SECRET = "linkwise-ca"  # noqa: S105 - its name.

T = TypeVar("T")


class Store:
    """The Secrets of one namespace, and the webhook configurations."""

    def __init__(
        self, kube: Kube, namespace: str, servers: Sequence[Server], targets: Sequence[Target]
    ) -> None:
        self._kube, self._servers, self._targets = kube, servers, targets
        self.collection = api_path("v1", "namespaces", namespace, "secrets")

    async def read(self) -> Snapshot:
        """Return all objects; the CAs are read after all others.

        Without a current CA, the others decide how it is replaced. Then they are read once more, so
        that they are no older than the CAs.

        Raises:
            KubeError: The API server cannot be reached, or refuses.
        """
        snapshot = await self._read()
        while not (snapshot.authorities.value and snapshot.authorities.value.current):
            before, snapshot = snapshot, await self._read()
            if snapshot.authorities.version == before.authorities.version:
                break
        return snapshot

    async def _read(self) -> Snapshot:
        configurations, leaves = await self._configurations(), await self._leaves()
        secret = await self._secret(CA_SECRET)
        authorities = _stored(secret, read_authorities)
        return Snapshot(
            configurations,
            leaves,
            authorities,
            uid=secret.metadata.uid if secret else "",
            is_rotation_requested=secret is not None and ROTATE_CA in secret.metadata.annotations,
            server_time=self._kube.server_time,
        )

    async def read_provided(self) -> Snapshot:
        """Return all objects but the CAs, which this process does not issue.

        Raises:
            KubeError: As `read`.
        """
        configurations, leaves = await self._configurations(), await self._leaves()
        time = self._kube.server_time
        return Snapshot(configurations, leaves, Stored(), server_time=time)

    async def write_authorities(self, stored: Stored[Authorities], new: Authorities) -> bool:
        """Store CAs; return False where the Secret has changed since it was read.

        The annotation that requests a rotation is removed.
        """
        annotations = {"annotations": {ROTATE_CA: None}} if new.next else {}
        return await self._write(CA_SECRET, "Opaque", stored, write_authorities(new), annotations)

    async def write_leaf(self, server: Server, stored: Stored[Leaf], new: Leaf) -> bool:
        """Store a leaf; return False where the Secret has changed since it was read."""
        return await self._write(server.secret, "kubernetes.io/tls", stored, write_leaf(new), {})

    async def _configurations(self) -> dict[Target, WebhookConfiguration]:
        found = {}
        for target in self._targets:
            path = path_below(target.collection, target.name)
            if configuration := await self._kube.find(path, WebhookConfiguration):
                found[target] = configuration
        return found

    async def _leaves(self) -> dict[Server, Stored[Leaf]]:
        return {
            server: _stored(await self._secret(server.secret), read_leaf)
            for server in self._servers
        }

    async def _secret(self, name: str) -> Secret | None:
        return await self._kube.find(path_below(self.collection, name), Secret)

    async def _write(
        self,
        name: str,
        kind: str,
        stored: Stored[T],
        data: Mapping[str, str | None],
        metadata: Mapping[str, object],
    ) -> bool:
        try:
            if stored.version is None:
                present = {key: text for key, text in data.items() if text is not None}
                new = {"type": kind, "metadata": {"name": name}, "data": present}
                await self._kube.create(self.collection, new, Secret)
            else:
                head = {"resourceVersion": stored.version, **metadata}
                patch = {"metadata": head, "data": data}
                await self._kube.patch(
                    path_below(self.collection, name), patch, Secret, kind="merge"
                )
        except ApiError as error:
            # AlreadyExists, Conflict, or NotFound: deleted since it was read.
            if error.status in {404, 409}:
                return False
            raise
        return True


def _stored(secret: Secret | None, read: Callable[[Mapping[str, str]], T]) -> Stored[T]:
    if secret is None:
        return Stored()
    version = secret.metadata.resource_version
    try:
        return Stored(read(secret.data or {}), "", version)
    except ContentError as error:
        return Stored(None, str(error), version)
