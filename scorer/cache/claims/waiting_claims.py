"""Find out whether pods whose claims wait at kube-scheduler wait for GPUs of NVIDIA's driver.

The watch of claims keeps none that holds nothing, so those of such pods are read.
"""

import math
from collections.abc import Iterable

from linkwise.cluster.objects.kube_object import KubeObject
from linkwise.cluster.objects.pod import Pod
from linkwise.cluster.requests.user_claims.device_class import CLASSES_OF_DRIVER
from linkwise.planning.gang.pod_info import PodInfo
from linkwise.runtime.kube.client import Kube
from linkwise.runtime.kube.dra_api import GROUP
from linkwise.runtime.kube.paths import path_below
from scorer.cache.claims.paced_reads import PacedReads

_CLAIMS_MAX = 8
"""Claims of one pod that are read."""


class _Device(KubeObject, frozen=True):
    device_class_name: str = ""

    @property
    def is_gpu(self) -> bool:
        """Return whether the class is one that the driver installs."""
        return self.device_class_name in CLASSES_OF_DRIVER


class _Request(KubeObject, frozen=True):
    exactly: _Device | None = None
    first_available: list[_Device] | None = None


class _Devices(KubeObject, frozen=True):
    requests: list[_Request] | None = None


class _Spec(KubeObject, frozen=True):
    devices: _Devices = _Devices()


class _Status(KubeObject, frozen=True):
    allocation: dict[str, object] | None = None


class _Claim(KubeObject, frozen=True):
    spec: _Spec = _Spec()
    status: _Status = _Status()

    @property
    def waits_for_gpus(self) -> bool:
        """It holds nothing, and a request names a class of the driver."""
        return self.status.allocation is None and any(
            device.is_gpu
            for request in self.spec.devices.requests or ()
            for device in (request.exactly, *(request.first_available or ()))
            if device
        )


class WaitingClaims:
    """Which of the pods whose claims wait do so for GPUs."""

    def __init__(self, kube: Kube) -> None:
        """Read nothing yet."""
        self._kube = kube
        self._reads = PacedReads(self._waits_for_gpus, math.inf)

    async def of_gpus(self, pods: Iterable[PodInfo], now: float) -> list[PodInfo]:
        """Return the pods that wait for GPUs, as far as their claims are read.

        Args:
            pods: All pods that kube-scheduler finds no devices for.
            now: Seconds since 1970.
        """
        pods = list(pods)
        await self._reads.read(pods, now)
        return [pod for pod in pods if self._reads.of(pod)]

    async def _waits_for_gpus(self, pod: PodInfo) -> bool:
        """Return whether an unallocated claim of a pod asks for GPUs.

        Raises:
            KubeError: The pod or a claim cannot be read.
        """
        found = await self._kube.find(pod.path, Pod)
        if found is None or found.metadata.uid != pod.uid:
            return False
        made = {
            one.name: one.resource_claim_name for one in found.status.resource_claim_statuses or ()
        }
        references = found.spec.resource_claims or ()
        names = (one.resource_claim_name or made.get(one.name) for one in references)
        for name in list(filter(None, names))[:_CLAIMS_MAX]:
            path = path_below(GROUP, "v1", "namespaces", pod.namespace, "resourceclaims", name)
            claim = await self._kube.find(path, _Claim)
            if claim and claim.waits_for_gpus:
                return True
        return False
