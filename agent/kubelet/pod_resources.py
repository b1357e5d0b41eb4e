"""Client of the kubelet's PodResources service."""

from collections import defaultdict
from pathlib import Path

from agent.kubelet.api.podresources_pb2 import ListPodResourcesRequest, ListPodResourcesResponse
from agent.kubelet.call import call
from agent.kubelet.container_devices import ContainerDevices

_LIST = "/v1.PodResourcesLister/List"


class PodResources:
    """Devices of the containers of this node, by the kubelet's books."""

    def __init__(self, socket: Path) -> None:
        """Create a client; it connects for each call.

        Args:
            socket: Such as `/var/lib/kubelet/pod-resources/kubelet.sock`.
        """
        self._socket = socket

    async def list(self) -> tuple[ContainerDevices, ...]:
        """Return the devices of all app and sidecar containers.

        The kubelet does not list init containers that end before the app containers start. It lends
        their devices to the app containers of the same pod, so some of these ids appear there.

        Raises:
            KubeletError: The kubelet gives no answer.
        """
        return containers_of(await self._list())

    async def pods(self) -> tuple[tuple[str, str], ...]:
        """Return namespace and name of all pods, also of those without devices.

        Raises:
            KubeletError: The kubelet gives no answer.
        """
        return tuple((pod.namespace, pod.name) for pod in (await self._list()).pod_resources)

    async def _list(self) -> ListPodResourcesResponse:
        return await call(self._socket, _LIST, ListPodResourcesRequest(), ListPodResourcesResponse)


def containers_of(listed: ListPodResourcesResponse) -> tuple[ContainerDevices, ...]:
    """Return the devices of an answer, once for each container and resource.

    The kubelet divides the devices of a resource by NUMA node where it knows that.
    """
    ids: defaultdict[tuple[str, str, str, str], set[str]] = defaultdict(set)
    for pod in listed.pod_resources:
        for container in pod.containers:
            for devices in container.devices:
                key = (pod.namespace, pod.name, container.name, devices.resource_name)
                ids[key].update(devices.device_ids)
    return tuple(ContainerDevices(*key, frozenset(part)) for key, part in ids.items())
