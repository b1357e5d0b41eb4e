"""ObjectMeta of a pod: its name, labels, annotations and owners."""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Annotated, TypeAlias

from msgspec import Meta

from linkwise.cluster.objects.kube_object import KubeObject, Labels

Name: TypeAlias = Annotated[str, Meta(max_length=317)]
"""A name, a key, or the value of a label. It is part of messages and patches, so its length is
bounded. The longest valid one is a key with a prefix of 253 characters and a name of 63."""
_OWNER_MAX = 320
"""Longest text of an ownerReference; no name or type of an object is longer [characters]."""
_NewLabels: TypeAlias = Annotated[dict[Name, Name], Meta(max_length=4096)]
_NewAnnotations: TypeAlias = Annotated[dict[Name, str], Meta(max_length=4096)]


class NewOwner(KubeObject, frozen=True):
    """An ownerReference of a pod that is being created."""

    kind: str = ""
    controller: bool | None = None
    api_version: str = ""
    name: str = ""


class Owner(NewOwner, frozen=True):
    """An ownerReference."""

    uid: str = ""


class NewMetadata(KubeObject, frozen=True):
    """ObjectMeta of a pod that is being created."""

    generate_name: Name = ""
    labels: _NewLabels | None = None
    annotations: _NewAnnotations | None = None
    owner_references: Annotated[Sequence[NewOwner], Meta(max_length=256)] | None = None


class Metadata(NewMetadata, frozen=True):
    """ObjectMeta."""

    generate_name: str = ""
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: Labels | None = None
    annotations: Labels | None = None
    owner_references: Sequence[Owner] | None = None

    @property
    def controlling_pod(self) -> str | None:
        """Uid of the pod that controls the object; None: no pod does."""
        owners = self.owner_references or ()
        return next((one.uid for one in owners if one.controller and one.kind == "Pod"), None)


def controller_of(owners: Iterable[Owner]) -> Owner | None:
    """Return the controller among owners; None for one that no object can be."""
    owner = next((owner for owner in owners if owner.controller), None)
    if owner is None:
        return None
    texts = owner.kind, owner.api_version, owner.name, owner.uid
    return _shared(owner) if all(len(text) <= _OWNER_MAX for text in texts) else None


@lru_cache(maxsize=4096)
def _shared(owner: Owner) -> Owner:
    """Return one object for all pods of an owner, which may be many."""
    return owner
