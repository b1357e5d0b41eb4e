"""Extended resources that DeviceClasses offer: kube-scheduler makes claims of pods for them.

Source: kubernetes v1.36, `shouldDelegateResourceToDRA` of `plugins/noderesources/fit.go`.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from linkwise.cluster.keys import CLASS_RESOURCE_PREFIX
from linkwise.cluster.requests.user_claims.device_class import DeviceClass


@dataclass(frozen=True, slots=True)
class ClassResources:
    """The resources that are left to kube-scheduler on nodes that have none of them."""

    names: frozenset[str] = frozenset()
    are_others: bool = False
    """All resources but those of `names`, since it is not known what the classes offer."""

    def __contains__(self, resource: str) -> bool:
        """Return whether kube-scheduler makes a claim for a resource that a node lacks."""
        return (resource in self.names) != self.are_others and "/" in resource


NONE = ClassResources()


def offered_by(classes: Iterable[frozenset[str]]) -> ClassResources:
    """Return what classes offer, of each its `resources_of`."""
    return ClassResources(frozenset().union(*classes))


def resources_of(device_class: DeviceClass) -> frozenset[str]:
    """Return the names under which pods can request devices of a class."""
    names = CLASS_RESOURCE_PREFIX + device_class.metadata.name, device_class.extended_resource_name
    return frozenset(name for name in names if name)
