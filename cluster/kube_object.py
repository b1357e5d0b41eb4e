"""The base of typed Kubernetes objects."""

from typing import TypeAlias

from msgspec import Struct

Labels: TypeAlias = dict[str, str]


class KubeObject(Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The names on the wire are lowerCamelCase.

    Decoded JSON has no cycles, so garbage collection is not needed.
    """
