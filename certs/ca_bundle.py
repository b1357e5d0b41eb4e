"""Inject `caBundle` into our webhook configurations, as cert-manager's cainjector does."""

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
    """WebhookClientConfig: only the field that is injected."""

    ca_bundle: str = ""
    """PEM, in base 64."""


class Webhook(Struct, frozen=True, rename="camel"):
    """One webhook of a configuration."""

    name: str
    client_config: ClientConfig = ClientConfig()


class WebhookConfiguration(Struct, frozen=True):
    """A MutatingWebhookConfiguration or a ValidatingWebhookConfiguration."""

    metadata: Metadata
    webhooks: list[Webhook] | None = None

    def trusts(self, authority: KeyPair) -> bool:
        """Return whether the `caBundle` of every webhook contains a CA."""
        bundles = {webhook.client_config.ca_bundle for webhook in self.webhooks or ()}
        return all(trusts(_decode(bundle), authority) for bundle in bundles)


@dataclass(frozen=True, slots=True)
class Target:
    """Identity of a webhook configuration whose `caBundle` is ours."""

    resource: str
    """`mutatingwebhookconfigurations` or `validatingwebhookconfigurations`."""
    kind: str
    name: str

    @property
    def collection(self) -> str:
        """Path of the API for its kind."""
        return f"/apis/{API}/{self.resource}"


def ca_bundle_patch(
    target: Target, configuration: WebhookConfiguration, trusted: bytes
) -> dict[str, object] | None:
    """Return the object to apply so that a configuration has a bundle; None where it has it.

    It names only `caBundle`, so that all other fields stay with the owner of the configuration.
    It has the resource version, so that the API server refuses it if the configuration has changed.

    Args:
        target: The configuration's identity.
        configuration: Its present state.
        trusted: The bundle [PEM].
    """
    webhooks = configuration.webhooks or []
    text = b64encode(trusted).decode()
    if all(webhook.client_config.ca_bundle == text for webhook in webhooks):
        return None
    version = configuration.metadata.resource_version
    return {
        "apiVersion": API,
        "kind": target.kind,
        "metadata": {"name": target.name, "resourceVersion": version},
        "webhooks": [
            {"name": webhook.name, "clientConfig": {"caBundle": text}} for webhook in webhooks
        ],
    }


async def inject_ca_bundle(
    kube: Kube, target: Target, configuration: WebhookConfiguration, trusted: bytes
) -> None:
    """Write a bundle into a configuration where it differs.

    Raises:
        KubeError: The API server cannot be reached, or refuses.
    """
    patch = ca_bundle_patch(target, configuration, trusted)
    if patch is None:
        return
    params = {"fieldManager": FIELD_MANAGER, "force": "true"}
    path = f"{target.collection}/{target.name}"
    try:
        await kube.patch(path, patch, WebhookConfiguration, kind="apply", params=params)
    except ApiError as error:
        # Changed or deleted since it was read: the watch event triggers the next reconcile.
        if error.status not in {404, 409}:
            raise
        return
    _log.info("caBundle injected", kind=target.kind, name=target.name)


def _decode(text: str) -> bytes:
    try:
        return b64decode(text)
    except ValueError:
        return b""
