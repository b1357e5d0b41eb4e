"""The error of someone who may not read the whole cluster."""

from linkwise.manifest.value import InputError

ROLE = "linkwise-view"
"""The ClusterRole for people who look at a cluster; also a Role in the namespaces of our
ConfigMaps."""


class MissingRole(InputError):  # noqa: N818 - an InputError with another answer.
    """Nodes, or the pods of all namespaces, may not be read; the message says what to do."""


def missing_role(server: str, refusal: str) -> MissingRole:
    """Return the error.

    Args:
        server: The address of the API server.
        refusal: Its message, without a full stop.
    """
    return MissingRole(
        f"{server}: {refusal}. Ask for the ClusterRole {ROLE}. Without it, `linkwise explain` "
        "and `linkwise check --server cluster` answer about your own namespace."
    )
