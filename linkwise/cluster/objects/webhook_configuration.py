"""The fields that are read of Secrets and webhook configurations."""

from base64 import b64decode, b64encode

from msgspec import Struct, field


class Metadata(Struct, frozen=True, rename="camel"):
    """ObjectMeta."""

    name: str
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    """Changes with the webhooks of a configuration, and with nothing else of it."""
    annotations: dict[str, str] = field(default_factory=dict)


class Secret(Struct, frozen=True):
    """A Secret."""

    metadata: Metadata
    data: dict[str, str] | None = None


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

    def has_bundle(self, bundle: bytes) -> bool:
        """Return whether every webhook has exactly this bundle [PEM]."""
        text = b64encode(bundle).decode()
        return all(each.client_config.ca_bundle == text for each in self.webhooks or ())

    @property
    def bundles(self) -> list[bytes]:
        """The different bundles of its webhooks [PEM]; empty text for what is not base 64."""
        texts = dict.fromkeys(each.client_config.ca_bundle for each in self.webhooks or ())
        return [_decode(text) for text in texts]


def _decode(text: str) -> bytes:
    try:
        return b64decode(text)
    except ValueError:
        return b""
