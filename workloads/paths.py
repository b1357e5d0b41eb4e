"""Paths of workloads at the API server, for owners that users can write."""

import re

from cluster.objects.pod import Owner
from workloads.registry import kind_of

_PART = re.compile(r"[a-z0-9][-.a-z0-9]*")


def is_part_of_path(text: str) -> bool:
    """Return whether a text is a valid part of a path: users can write any text into owners."""
    return _PART.fullmatch(text) is not None


def path_of(owner: Owner, namespace: str) -> str | None:
    """Return the path of an owner; None where its kind declares no number of pods."""
    kind = kind_of(owner.api_version, owner.kind)
    version = owner.api_version.rpartition("/")[2]
    if kind is None or kind.plural is None or not all(map(is_part_of_path, (version, owner.name))):
        return None
    return f"/apis/{kind.group}/{version}/namespaces/{namespace}/{kind.plural}/{owner.name}"
