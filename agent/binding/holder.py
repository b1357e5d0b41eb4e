"""The container that holds a set of device ids, and its pod."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol, TypeVar

from msgspec import Struct

from agent.binding.container_spec import Binding
from agent.binding.errors import BindError
from agent.kubelet.call import KubeletError
from agent.kubelet.checkpoint import AllocatedDevices, read_checkpoint
from agent.kubelet.container_devices import ContainerDevices
from cluster.pod import Pod
from runtime.kube.client import ApiError, Kube, KubeError, Unreachable

_T = TypeVar("_T")
_ALL: Mapping[str, str] = {}
_TERMINAL = frozenset({"Succeeded", "Failed"})
_NOT_FOUND = 404
_REFUSED = frozenset({400, 401, 403, 404, 410})
"""Answers of the API server that do not change by themselves."""


class DeviceLister(Protocol):
    """The kubelet's PodResources service."""

    async def list(self) -> tuple[ContainerDevices, ...]:
        """Return the devices of all app and sidecar containers; raises KubeletError."""


class _PodList(Struct, frozen=True):
    items: list[Pod]


class ApiOutage(Exception):  # noqa: N818 - the name of the condition.
    """The API server cannot be asked now; the message has the reason."""


class Holders:
    """Finds the container that holds devices, by the kubelet's books and the API server."""

    def __init__(self, node: str, lister: DeviceLister, checkpoint: Path, kube: Kube) -> None:
        """Ask nothing yet.

        Args:
            node: Name of this node.
            lister: The kubelet's PodResources service.
            checkpoint: The file `kubelet_internal_checkpoint` of the kubelet's device manager.
            kube: The API server; the account may get and list pods.
        """
        self.node, self._lister, self._checkpoint, self._kube = node, lister, checkpoint, kube

    async def listed(self) -> tuple[ContainerDevices, ...]:
        """Return the devices of all containers that PodResources lists.

        Raises:
            BindError: The kubelet gives no answer.
        """
        try:
            return await self._lister.list()
        except KubeletError as error:
            raise BindError(f"the containers of the node cannot be listed: {error}") from error

    def in_checkpoint(self, resource: str, ids: frozenset[str]) -> tuple[AllocatedDevices, ...]:
        """Return the containers that hold exactly these devices, by the kubelet's checkpoint."""
        try:
            entries = read_checkpoint(self._checkpoint.read_bytes())
        except OSError:
            return ()
        return tuple(e for e in entries if (e.resource, e.device_ids) == (resource, ids))

    async def find(self, resource: str, ids: frozenset[str]) -> tuple[Pod, str]:
        """Return the pod and the name of the container that hold exactly these devices.

        The kubelet lends the devices of init containers to app containers of the same pod. If both
        hold the same devices, the app container is returned: the init container may use its GPUs,
        since it ends before.

        Raises:
            BindError: No container holds them, or its pod is gone.
            ApiOutage: The API server cannot be asked.
        """
        for devices in await self.listed():
            if (devices.resource, devices.device_ids) == (resource, ids):
                path = _pod_path(devices.namespace, devices.pod)
                return await self._get(path, Pod), devices.container
        entries = await asyncio.to_thread(self.in_checkpoint, resource, ids)
        if entries:
            of_node = {"fieldSelector": f"spec.nodeName={self.node}"}
            pods = await self._get("/api/v1/pods", _PodList, of_node)
            containers = {(entry.uid, entry.container) for entry in entries}
            for pod in pods.items:
                for container in pod.spec.init_containers or ():
                    if (pod.metadata.uid, container.name) in containers:
                        return pod, container.name
        raise BindError(
            f"no container of the kubelet's books holds the devices {', '.join(sorted(ids))} of "
            f"{resource}; the kubelet tries again"
        )

    async def is_gone(self, binding: Binding) -> bool:
        """Return whether the pod of a binding has ended; False without an answer."""
        try:
            pod = await self._kube.get(_pod_path(binding.namespace, binding.pod), Pod)
        except KubeError as error:
            return isinstance(error, ApiError) and error.status == _NOT_FOUND
        return pod.metadata.uid != binding.uid or pod.status.phase in _TERMINAL

    async def _get(self, path: str, returns: type[_T], params: Mapping[str, str] = _ALL) -> _T:
        try:
            return await self._kube.get(path, returns, params=params)
        except ApiError as error:
            if error.status not in _REFUSED:
                raise ApiOutage(str(error)) from error
            raise BindError(f"the pod of the container cannot be read: {error}") from error
        except Unreachable as error:
            raise ApiOutage(str(error)) from error
        except KubeError as error:
            raise BindError(f"the pod of the container cannot be read: {error}") from error


def _pod_path(namespace: str, pod: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods/{pod}"
