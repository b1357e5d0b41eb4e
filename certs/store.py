"""The Secret: read, and written only as it was read."""

from msgspec import Struct

from certs.authority import KeySource
from certs.bundle import Bundle, BundleError, read_bundle, write_bundle
from certs.renewal import IssuancePolicy, renewal_reason, renewed
from runtime.kube.client import ApiError, Kube


class Metadata(Struct, frozen=True, rename="camel"):
    """Which object, and which version of it."""

    name: str
    resource_version: str = ""


class Secret(Struct, frozen=True):
    """A Secret."""

    metadata: Metadata
    data: dict[str, str] | None = None


class Store:
    """One Secret, and what is written to it when it is due."""

    def __init__(
        self, kube: Kube, namespace: str, name: str, terms: IssuancePolicy, source: KeySource
    ) -> None:
        self._kube = kube
        self.name = name
        self.collection = f"/api/v1/namespaces/{namespace}/secrets"
        self._terms, self._source = terms, source

    async def ensure(self, now: float) -> tuple[Bundle, str | None]:
        """Return the bundle that is stored when all is done, and why it was made anew if it was.

        Whoever writes first wins: a write that comes second is refused, and what the first wrote
        is read.

        Args:
            now: [s since 1970].

        Raises:
            KubeError: The API server cannot be asked, or refuses.
        """
        while True:
            secret = await self._read()
            bundle, reason = self._judge(secret, now)
            if bundle is not None and reason is None:
                return bundle, None
            made = renewed(bundle, self._terms, now, self._source)
            if await self._write(secret, made):
                return made, reason

    def _judge(self, secret: Secret | None, now: float) -> tuple[Bundle | None, str | None]:
        if secret is None:
            return None, "there is no Secret"
        try:
            bundle = read_bundle(secret.data or {})
        except BundleError as error:
            return None, str(error)
        return bundle, renewal_reason(bundle, self._terms.names, now)

    async def _read(self) -> Secret | None:
        try:
            return await self._kube.get(f"{self.collection}/{self.name}", Secret)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    async def _write(self, secret: Secret | None, bundle: Bundle) -> bool:
        """Return whether it was written; not, when somebody else has written since."""
        data = write_bundle(bundle)
        try:
            if secret is None:
                metadata = {"name": self.name}
                made = {"type": "kubernetes.io/tls", "metadata": metadata, "data": data}
                await self._kube.create(self.collection, made, Secret)
            else:
                metadata = {"resourceVersion": secret.metadata.resource_version}
                path = f"{self.collection}/{self.name}"
                change = {"metadata": metadata, "data": data}
                await self._kube.patch(path, change, Secret, kind="merge")
        except ApiError as error:
            # AlreadyExists and Conflict; deleted since it was read.
            if error.status in {404, 409}:
                return False
            raise
        return True
