"""The way to the dry-run API through the API server, for people with a role in one namespace.

The API server's proxy of the webhook's Service removes the header `Authorization`, so the token is
in a header of its own. Whoever may edit a namespace can make it, whatever the credentials: it is a
token of a ServiceAccount of the namespace, for an audience that nothing else uses.
"""

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


def token_path(namespace: str) -> str:
    """Return where tokens of that ServiceAccount are made.

    Raises:
        InvalidPath: No namespace can have this name.
    """
    return api_path("v1", "namespaces", namespace, "serviceaccounts", ACCOUNT, "token")
