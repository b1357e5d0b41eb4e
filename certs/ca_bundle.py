"""The registrations: their `caBundle` follows the bundle, whoever clears it."""

from base64 import b64decode, b64encode
from dataclasses import dataclass

import structlog
from msgspec import Struct

from certs.authority import KeyPair
from certs.bundle import trusts
from certs.store import Metadata
from runtime.kube.client import ApiError, Kube

API = "admissionregistration.k8s.io/v1"
FIELD_MANAGER = "linkwise-certs"

_log = structlog.get_logger()


class ClientConfig(Struct, frozen=True, rename="camel"):
    """How a webhook is called, as far as it is ours."""

    ca_bundle: str = ""
    """PEM, in base 64."""


class Webhook(Struct, frozen=True, rename="camel"):
    """One webhook of a registration."""

    name: str
    client_config: ClientConfig = ClientConfig()


class Registration(Struct, frozen=True):
    """A MutatingWebhookConfiguration or a ValidatingWebhookConfiguration."""

    metadata: Metadata
    webhooks: list[Webhook] | None = None

    def trusts(self, authority: KeyPair) -> bool:
        """Whether every one of its webhooks is called with a bundle that has this CA."""
        bundles = {webhook.client_config.ca_bundle for webhook in self.webhooks or ()}
        return all(trusts(_bytes(bundle), authority) for bundle in bundles)


@dataclass(frozen=True, slots=True)
class Target:
    """Which registration."""

    resource: str
    """`mutatingwebhookconfigurations`, or the other."""
    kind: str
    name: str

    @property
    def collection(self) -> str:
        """Where objects of its kind are."""
        return f"/apis/{API}/{self.resource}"


def change(target: Target, found: Registration, trusted: bytes) -> dict[str, object] | None:
    """Return what is applied so that a registration has a bundle; None when it has it.

    Only `caBundle` is named, so that everything else stays with whoever deploys the registration.
    The version makes it refused when the registration has changed or gone since it was read.

    Args:
        target: Which registration.
        found: What it is now.
        trusted: The bundle [PEM].
    """
    webhooks = found.webhooks or []
    text = b64encode(trusted).decode()
    if all(webhook.client_config.ca_bundle == text for webhook in webhooks):
        return None
    return {
        "apiVersion": API,
        "kind": target.kind,
        "metadata": {"name": target.name, "resourceVersion": found.metadata.resource_version},
        "webhooks": [
            {"name": webhook.name, "clientConfig": {"caBundle": text}} for webhook in webhooks
        ],
    }


async def inject(kube: Kube, target: Target, found: Registration, trusted: bytes) -> None:
    """Write a bundle into a registration that has another one, or none.

    Raises:
        KubeError: The API server cannot be asked, or refuses.
    """
    body = change(target, found, trusted)
    if body is None:
        return
    params = {"fieldManager": FIELD_MANAGER, "force": "true"}
    path = f"{target.collection}/{target.name}"
    try:
        await kube.patch(path, body, Registration, kind="apply", params=params)
    except ApiError as error:
        # It changed or went since it was read: the watch tells, and then it is judged anew.
        if error.status not in {404, 409}:
            raise
        return
    _log.info("Wrote caBundle", kind=target.kind, name=target.name)


def _bytes(text: str) -> bytes:
    try:
        return b64decode(text)
    except ValueError:
        return b""
