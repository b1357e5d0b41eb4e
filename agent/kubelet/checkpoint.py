"""The checkpoint of the kubelet's device manager.

PodResources does not list init containers that end before the app containers start; the checkpoint
has their devices. The kubelet writes it before it calls PreStartContainer. Its format is internal:
`pkg/kubelet/cm/devicemanager/checkpoint/checkpoint.go` of Kubernetes 1.36.
"""

from dataclasses import dataclass

import msgspec
from msgspec import Struct


@dataclass(frozen=True, slots=True)
class AllocatedDevices:
    """Devices of one resource of one container."""

    uid: str
    """UID of the pod."""
    container: str
    resource: str
    device_ids: frozenset[str]


class _Entry(Struct, frozen=True, rename="pascal"):
    pod_uid: str = msgspec.field(name="PodUID")
    container_name: str
    resource_name: str
    device_ids: dict[str, list[str] | None] | None = msgspec.field(name="DeviceIDs")
    """By NUMA node."""


class _Data(Struct, frozen=True, rename="pascal"):
    pod_device_entries: list[_Entry] | None = None


class _Checkpoint(Struct, frozen=True, rename="pascal"):
    data: _Data = _Data()


def read_checkpoint(data: bytes) -> tuple[AllocatedDevices, ...]:
    """Return the devices of all containers; none of an unreadable checkpoint."""
    try:
        checkpoint = msgspec.json.decode(data, type=_Checkpoint)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return ()
    return tuple(
        AllocatedDevices(
            entry.pod_uid,
            entry.container_name,
            entry.resource_name,
            frozenset(i for part in (entry.device_ids or {}).values() for i in part or ()),
        )
        for entry in checkpoint.data.pod_device_entries or ()
    )
