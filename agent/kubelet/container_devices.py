"""Devices that the kubelet has allocated to containers."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ContainerDevices:
    """Devices of one resource of one container, as PodResources lists them."""

    namespace: str
    pod: str
    container: str
    resource: str
    device_ids: frozenset[str]
