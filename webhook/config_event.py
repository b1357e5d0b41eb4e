"""An Event of the Kubernetes API that tells people why a ConfigMap is not taken."""

from hashlib import sha256

from msgspec import Struct

from webhook.active_config import ConfigSource

COMPONENT = "linkwise-webhook"
LONGEST = 1024
"""The API server refuses a longer message [characters]."""


class ConfigMapMeta(Struct, frozen=True, rename="camel"):
    """Which ConfigMap, in which state."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


def refusal_event(
    home: ConfigSource, about: ConfigMapMeta, message: str, *, now: str, instance: str
) -> dict[str, object]:
    """Return a Warning about a ConfigMap.

    All replicas give it one name, so that it is made once for each change.

    Args:
        home: The ConfigMap.
        about: Its state.
        message: What is wrong; cut where it is too long.
        now: RFC 3339.
        instance: Which replica says so.
    """
    change = sha256(f"{about.uid}/{about.resource_version}".encode()).hexdigest()[:16]
    cut = message if len(message) <= LONGEST else f"{message[: LONGEST - 1]}…"
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{home.name}.{change}", "namespace": home.namespace},
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": home.name,
            "namespace": home.namespace,
            "uid": about.uid,
            "resourceVersion": about.resource_version,
        },
        "type": "Warning",
        "reason": "PolicyRefused",
        "message": cut,
        "source": {"component": COMPONENT, "host": instance},
        "reportingComponent": COMPONENT,
        "reportingInstance": instance,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
