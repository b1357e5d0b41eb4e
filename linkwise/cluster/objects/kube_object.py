"""The base of typed Kubernetes objects, and the path of a pod."""

from typing import TypeAlias

from msgspec import Struct

from linkwise.runtime.kube.paths import api_path

Labels: TypeAlias = dict[str, str]


class KubeObject(Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The names on the wire are lowerCamelCase.

    Decoded JSON has no cycles, so garbage collection is not needed.
    """


def pod_path(namespace: str, name: str) -> str:
    """Return the path of a pod at the API server."""
    return api_path("v1", "namespaces", namespace, "pods", name)
