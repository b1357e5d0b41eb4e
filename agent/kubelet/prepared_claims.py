"""The claims that the kubelet has prepared, by the state of its DRA manager.

A claim is there from before the first container of its pods starts until after the last one has
ended. Only that of a pod which vanished from the API server is forgotten before: within a minute.
The format is internal: `pkg/kubelet/cm/dra/state/checkpoint.go` of Kubernetes 1.36 and 1.37.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec
from msgspec import Struct, field

from agent.driver.reading import GPU
from agent.kubelet.call import KubeletError
from linkwise.cluster.allocations.gpus import GPUShare
from linkwise.cluster.keys import DRA_GPU_DRIVER

STATE_FILE = "dra_manager_state"
"""In the kubelet's folder."""
_DEVICE = re.compile(r"gpu-([0-9]{1,4})(?:-.*)?")
"""The driver names a GPU, and the MIG devices of it, by its minor."""


@dataclass(frozen=True, slots=True)
class PodWithClaim:
    """A pod with the GPUs of one of its claims."""

    namespace: str
    uid: str
    gpus: tuple[GPUShare, ...]

    @property
    def pod(self) -> str:
        """Its UID, in place of its name, which the kubelet does not write."""
        return self.uid


class _Device(Struct, frozen=True):
    name: str = field(name="DeviceName")


class _Driver(Struct, frozen=True):
    devices: list[_Device] | None = field(name="Devices", default=None)


class _Claim(Struct, frozen=True):
    namespace: str = field(name="Namespace")
    pods: dict[str, object] | None = field(name="PodUIDs")
    """A set: by UID."""
    drivers: dict[str, _Driver] | None = field(name="DriverState")


class _Data(Struct, frozen=True):
    claims: list[_Claim] | None = field(name="ClaimInfoStateList")


class _Checkpoint(Struct, frozen=True):
    data: str = field(name="Data")


def pods_with_claims(state: bytes, gpus: Sequence[GPU]) -> tuple[PodWithClaim, ...]:
    """Return the pods that have GPUs by claims, once for each claim.

    Args:
        state: The content of the file.
        gpus: All GPUs. A device whose name has none of their minors may be any of them.

    Raises:
        KubeletError: The state is unreadable.
    """
    try:
        checkpoint = msgspec.json.decode(state, type=_Checkpoint)
        data = msgspec.json.decode(checkpoint.data, type=_Data)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise KubeletError(f"the kubelet's {STATE_FILE} cannot be read: {error}") from error
    shares = {gpu.minor: GPUShare(gpu.i, gpu.uuid) for gpu in gpus}
    return tuple(_pods(data.claims or (), shares))


def _pods(claims: Sequence[_Claim], shares: dict[int | None, GPUShare]) -> Iterator[PodWithClaim]:
    for claim in claims:
        driver = (claim.drivers or {}).get(DRA_GPU_DRIVER, _Driver())
        held: set[GPUShare] = set()
        for device in driver.devices or ():
            named = _DEVICE.fullmatch(device.name)
            share = shares.get(int(named[1])) if named else None
            held.update([share] if share else shares.values())
        for uid in (claim.pods or {}) if held else ():
            yield PodWithClaim(claim.namespace, uid, tuple(held))
