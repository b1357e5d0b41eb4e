"""Kubernetes objects of which the command reads a few fields."""

from typing import Any, TypeAlias

from msgspec import Struct

from linkwise.cluster.objects.metadata import Metadata

Plain: TypeAlias = dict[str, Any]
"""An object as JSON."""


class AnyObject(Struct, frozen=True):
    """The part that objects of all kinds have."""

    metadata: Metadata = Metadata()


class NodeAddress(Struct, frozen=True):
    """One of a node's addresses."""

    type: str = ""
    address: str = ""


class _NodeStatus(Struct, frozen=True):
    addresses: list[NodeAddress] | None = None


class NodeAddresses(Struct, frozen=True):
    """The addresses of a Node."""

    status: _NodeStatus = _NodeStatus()

    @property
    def internal(self) -> list[NodeAddress]:
        """Those of type InternalIP."""
        return [item for item in self.status.addresses or () if item.type == "InternalIP"]
