"""The parts of Kubernetes objects that several components read."""

from typing import TypeAlias

from msgspec import Struct

Key: TypeAlias = tuple[str, str]
"""Namespace (empty for cluster-scoped objects) and name."""


class ObjectMeta(Struct, frozen=True, rename="camel"):
    """The identity of an object."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""

    @property
    def key(self) -> Key:
        """The namespace and the name."""
        return self.namespace, self.name


class Object(Struct, frozen=True):
    """An object of which only the identity is read."""

    metadata: ObjectMeta = ObjectMeta()


class LabelledMeta(ObjectMeta, frozen=True):
    """The identity and the labels of an object."""

    labels: dict[str, str] | None = None


class LabelledObject(Struct, frozen=True):
    """An object of which the identity and the labels are read."""

    metadata: LabelledMeta = LabelledMeta()


class Written(Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """A part of an object that we write. Fields with their default are omitted.

    It is never part of a cycle, so that garbage collection skips it.
    """


class OwnerReference(Written, frozen=True):
    """The garbage collector deletes an object after its owner."""

    api_version: str
    kind: str
    name: str
    uid: str


class ConfigMap(LabelledObject, frozen=True):
    """A ConfigMap; only its text, not its binary data."""

    data: dict[str, str] | None = None


class AnnotatedMeta(ObjectMeta, frozen=True):
    """The identity and the annotations of an object."""

    annotations: dict[str, str] | None = None


class AnnotatedObject(Struct, frozen=True):
    """An object of which the identity and the annotations are read."""

    metadata: AnnotatedMeta = AnnotatedMeta()
