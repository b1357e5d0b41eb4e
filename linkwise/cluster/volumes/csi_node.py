"""CSINodes: how many volumes of each driver a node can attach.

Source: kubernetes v1.36, `staging/src/k8s.io/api/storage/v1/types.go`.
"""

from linkwise.cluster.objects.kube_object import KubeObject
from linkwise.cluster.objects.metadata import Metadata
from linkwise.cluster.volumes.names import kept_name

DRIVERS_MAX = 64
"""Drivers of a node whose limits are kept; a node has a few."""

AttachLimits = tuple[tuple[str, int], ...]
"""Drivers that limit their volumes on a node, by name, and how many each attaches at most."""


class _Allocatable(KubeObject, frozen=True):
    count: int | None = None


class _Driver(KubeObject, frozen=True):
    name: str = ""
    allocatable: _Allocatable | None = None


class _Spec(KubeObject, frozen=True):
    drivers: list[_Driver] | None = None


class CSINodeObject(KubeObject, frozen=True):
    """The fields of a CSINode that Linkwise reads."""

    kind: str = "CSINode"
    metadata: Metadata = Metadata()
    spec: _Spec = _Spec()

    @property
    def content(self) -> AttachLimits:
        """The limits of its drivers."""
        limits = (
            (kept_name(driver.name), min(driver.allocatable.count, 1 << 31))
            for driver in (self.spec.drivers or [])[:DRIVERS_MAX]
            if driver.allocatable and driver.allocatable.count is not None
        )
        return tuple(sorted(limits))
