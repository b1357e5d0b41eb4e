"""Paths of workloads at the API server, for owners and groups that users can write."""

from linkwise.cluster.objects.metadata import Owner
from linkwise.runtime.kube.paths import InvalidPath, api_path
from linkwise.workloads.registry import kind_of


def path_in(namespace: str, api_version: str, plural: str, name: str) -> str | None:
    """Return the path of an object; None for texts that no object has: users can write any."""
    try:
        return api_path(api_version, "namespaces", namespace, plural, name)
    except InvalidPath:
        return None


def path_of(owner: Owner, namespace: str) -> str | None:
    """Return the path of an owner; None where its kind declares no number of pods."""
    kind = kind_of(owner.api_version, owner.kind)
    if kind is None or kind.plural is None:
        return None
    version = owner.api_version.rpartition("/")[2]
    return path_in(namespace, f"{kind.group}/{version}", kind.plural, owner.name)
