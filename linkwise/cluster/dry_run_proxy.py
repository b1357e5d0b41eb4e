"""The way to the dry-run API through the API server, for people with a role in one namespace.

The API server's proxy of the webhook's Service removes the header `Authorization`, so the token is
in a header of its own. Whoever may edit a namespace can make it, whatever the credentials: it is a
token of a ServiceAccount of the namespace, for an audience that nothing else uses.
"""

from base64 import urlsafe_b64decode

import msgspec
from msgspec import Struct

from linkwise.cluster.keys import POLICY_NAMESPACE
from linkwise.runtime.kube.paths import api_path

NAMESPACE_AUDIENCE = "linkwise-namespace"
"""Audience of tokens by which a namespace asks about pods of its own."""
TOKEN_HEADER = "Linkwise-Token"  # noqa: S105 - its name.
"""Its value is `Bearer`, and the token."""
SERVICE = "https:linkwise-webhook:dry-run"
"""Scheme, name and port of the Service, as the proxy has them."""
PROXY = api_path("v1", "namespaces", POLICY_NAMESPACE, "services", SERVICE, "proxy")
ACCOUNT = "default"
"""A ServiceAccount that each namespace has."""

SERVICE_ACCOUNT = "system:serviceaccount:"
"""The names of ServiceAccounts as users begin so; their namespace and own name follow."""


class _Claims(Struct, frozen=True):
    """What a token says of itself (RFC 7519); an API server writes the audiences as a list."""

    sub: str
    aud: list[str]


_claims = msgspec.json.Decoder(_Claims)


def claimed_namespace(header: str) -> str | None:
    """Return the namespace that a token says it is for, unverified; None: it cannot be for one.

    Args:
        header: The value of the header that has the token.
    """
    _, _, token = header.partition(" ")
    parts = token.split(".")
    if len(parts) != 3:
        return None
    payload = parts[1]
    try:
        claims = _claims.decode(urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except (ValueError, msgspec.DecodeError):
        return None
    if NAMESPACE_AUDIENCE not in claims.aud:
        return None
    return namespace_of_account(claims.sub) or None


def namespace_of_account(username: str) -> str:
    """Return the namespace of a ServiceAccount; empty for another user."""
    account = username.removeprefix(SERVICE_ACCOUNT)
    return account.partition(":")[0] if account != username else ""


def token_path(namespace: str) -> str:
    """Return where tokens of that ServiceAccount are made.

    Raises:
        InvalidPath: No namespace can have this name.
    """
    return api_path("v1", "namespaces", namespace, "serviceaccounts", ACCOUNT, "token")
