"""Read and write the Secret with the certificates, with optimistic concurrency."""

from msgspec import Struct

from certs.authority import KeySource
from certs.bundle import Bundle, BundleError, read_bundle, write_bundle
from certs.renewal import IssuancePolicy, renew, renewal_reason
from runtime.kube.client import ApiError, Kube


class Metadata(Struct, frozen=True, rename="camel"):
    """ObjectMeta: an object's name and version."""

    name: str
    resource_version: str = ""


class Secret(Struct, frozen=True):
    """A Secret."""

    metadata: Metadata
    data: dict[str, str] | None = None


class Store:
    """One Secret that holds a bundle."""

    def __init__(
        self, kube: Kube, namespace: str, name: str, issuance: IssuancePolicy, key_source: KeySource
    ) -> None:
        self._kube = kube
        self.name = name
        self.collection = f"/api/v1/namespaces/{namespace}/secrets"
        self._issuance, self._key_source = issuance, key_source

    async def ensure(self, now: float) -> tuple[Bundle, str | None]:
        """Return the stored bundle, renewed where it is due, and the reason if it was renewed.

        Where replicas write concurrently, the first write wins; the others read what it stored.

        Args:
            now: [s since 1970].

        Raises:
            KubeError: The API server cannot be reached, or refuses.
        """
        while True:
            secret = await self._read()
            bundle, reason = self._check(secret, now)
            if bundle is not None and reason is None:
                return bundle, None
            renewed = renew(bundle, self._issuance, now, self._key_source)
            if await self._write(secret, renewed):
                return renewed, reason

    def _check(self, secret: Secret | None, now: float) -> tuple[Bundle | None, str | None]:
        if secret is None:
            return None, "there is no Secret"
        try:
            bundle = read_bundle(secret.data or {})
        except BundleError as error:
            return None, str(error)
        return bundle, renewal_reason(bundle, self._issuance.names, now)

    async def _read(self) -> Secret | None:
        try:
            return await self._kube.get(f"{self.collection}/{self.name}", Secret)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    async def _write(self, secret: Secret | None, bundle: Bundle) -> bool:
        """Write a bundle; return False where the Secret has changed since it was read."""
        data = write_bundle(bundle)
        try:
            if secret is None:
                new = {"type": "kubernetes.io/tls", "metadata": {"name": self.name}, "data": data}
                await self._kube.create(self.collection, new, Secret)
            else:
                metadata = {"resourceVersion": secret.metadata.resource_version}
                path = f"{self.collection}/{self.name}"
                patch = {"metadata": metadata, "data": data}
                await self._kube.patch(path, patch, Secret, kind="merge")
        except ApiError as error:
            # AlreadyExists, Conflict, or NotFound: deleted since it was read.
            if error.status in {404, 409}:
                return False
            raise
        return True
