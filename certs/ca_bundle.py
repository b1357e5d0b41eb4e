"""Inject `caBundle` into our webhook configurations, as cert-manager's cainjector does."""

from base64 import b64encode
from dataclasses import dataclass

import structlog
from cryptography import x509

from certs.authority import is_issued_by
from certs.pem import ContentError, read_certificates
from linkwise.cluster.keys import CERTS
from linkwise.cluster.objects.webhook_configuration import WebhookConfiguration
from linkwise.runtime.kube.client import ApiError, Kube
from linkwise.runtime.kube.paths import api_path, path_below

API = "admissionregistration.k8s.io/v1"

_log = structlog.get_logger()


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
        return api_path(API, self.resource)


def trusts(configuration: WebhookConfiguration, leaf: x509.Certificate) -> bool:
    """Return whether the `caBundle` of every webhook has the CA of a leaf."""
    return all(_has_issuer(bundle, leaf) for bundle in configuration.bundles)


def ca_bundle_patch(
    target: Target, configuration: WebhookConfiguration, bundle: bytes
) -> dict[str, object] | None:
    """Return the object to apply so that a configuration has a bundle; None where it has it.

    It names only `caBundle`, so that all other fields stay with the owner of the configuration.
    It has the resource version, so that the API server refuses it if the configuration has changed.

    Args:
        target: The configuration's identity.
        configuration: Its present state.
        bundle: The trusted CAs [PEM].
    """
    if configuration.has_bundle(bundle):
        return None
    text = b64encode(bundle).decode()
    version = configuration.metadata.resource_version
    return {
        "apiVersion": API,
        "kind": target.kind,
        "metadata": {"name": target.name, "resourceVersion": version},
        "webhooks": [
            {"name": webhook.name, "clientConfig": {"caBundle": text}}
            for webhook in configuration.webhooks or ()
        ],
    }


async def inject_ca_bundle(
    kube: Kube, target: Target, configuration: WebhookConfiguration, bundle: bytes
) -> bool:
    """Write a bundle into a configuration where it differs; return whether it was written.

    Raises:
        KubeError: The API server cannot be reached, or refuses.
    """
    patch = ca_bundle_patch(target, configuration, bundle)
    if patch is None:
        return False
    params = {"fieldManager": CERTS, "force": "true"}
    path = path_below(target.collection, target.name)
    try:
        await kube.patch(path, patch, WebhookConfiguration, kind="apply", params=params)
    except ApiError as error:
        # Changed or deleted since it was read: the watch event triggers the next reconcile.
        if error.status not in {404, 409}:
            raise
        return False
    _log.info("caBundle injected", kind=target.kind, name=target.name)
    return True


def _has_issuer(bundle: bytes, leaf: x509.Certificate) -> bool:
    try:
        authorities = read_certificates(bundle, "caBundle")
    except ContentError:
        return False
    return any(is_issued_by(leaf, authority) for authority in authorities)
