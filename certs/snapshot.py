"""The objects that decide what happens next, as they were read from the API server."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from certs.authorities import Authorities
from certs.ca_bundle import Target
from certs.leaf import Leaf, Server
from linkwise.cluster.objects.webhook_configuration import WebhookConfiguration

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Stored(Generic[T]):
    """The content of a Secret."""

    value: T | None = None
    error: str = "there is no Secret"
    """Why there is no value."""
    version: str | None = None
    """The resourceVersion; None where the Secret does not exist."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All objects, the CAs read last.

    This order makes stale writes harmless. A replica writes a webhook configuration or a leaf only
    if it has not changed since it was read, so not since before the CAs were read. If
    another replica has changed the CAs since then, its wait begins only after it has rewritten that
    object.
    """

    configurations: Mapping[Target, WebhookConfiguration]
    """Those that exist."""
    leaves: Mapping[Server, Stored[Leaf]]
    authorities: Stored[Authorities]
    uid: str = ""
    """Of the Secret of the CAs."""
    is_rotation_requested: bool = False
    """Its annotation requests a rotation."""
    server_time: float | None = None
    """The API server's time; None: not known [s since 1970]."""

    @property
    def lacks_leaf(self) -> bool:
        """Whether the Secret of a server is missing or cannot be read."""
        return any(stored.value is None for stored in self.leaves.values())
