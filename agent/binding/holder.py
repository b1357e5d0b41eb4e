"""The container that holds a set of device ids, and its pod."""

import asyncio
from collections.abc import Awaitable, Collection
from pathlib import Path
from typing import Protocol, TypeVar

from agent.binding.errors import BindError
from agent.binding.last_holders import LastHolders
from agent.binding.liveness import Liveness
from agent.kubelet.call import KubeletError
from agent.kubelet.checkpoint import AllocatedDevices, read_checkpoint
from agent.kubelet.container_devices import ContainerDevices
from linkwise.cluster.objects.kube_object import pod_path
from linkwise.cluster.objects.pod import Pod
from linkwise.runtime.kube.client import ApiError, Kube, KubeError, Unreachable
from linkwise.runtime.kube.objects import Object

_T = TypeVar("_T")
_GONE = 404
_REFUSED = frozenset({400, 401, 403, _GONE, 410})
"""Answers of the API server that do not change by themselves."""


class DeviceLister(Protocol):
    """The kubelet's PodResources service."""

    async def list(self) -> tuple[ContainerDevices, ...]:
        """Return the devices of all app and sidecar containers; raises KubeletError."""

    async def pods(self) -> tuple[tuple[str, str], ...]:
        """Return namespace and name of all pods of the node; raises KubeletError."""


class _PodGoneError(BindError):
    """The pod does not exist."""


class ApiOutage(Exception):  # noqa: N818 - the name of the condition.
    """The API server cannot be asked now; the message has the reason."""


class Holders:
    """Finds the container that holds devices, by the kubelet's books and the API server."""

    def __init__(
        self, node: str, lister: DeviceLister, checkpoint: Path, kube: Kube, last: LastHolders
    ) -> None:
        """Ask nothing yet.

        Args:
            node: Name of this node.
            lister: The kubelet's PodResources service.
            checkpoint: The file `kubelet_internal_checkpoint` of the kubelet's device manager.
            kube: The API server; the account may get pods.
            last: The pods that are gone and have processes.
        """
        self.node, self._lister, self._checkpoint, self._kube = node, lister, checkpoint, kube
        self.last = last

    async def listed(self) -> tuple[ContainerDevices, ...]:
        """Return the devices of all containers that PodResources lists.

        Raises:
            BindError: The kubelet gives no answer.
        """
        return await _asked(self._lister.list())

    async def in_checkpoint(
        self, resource: str, ids: frozenset[str]
    ) -> tuple[AllocatedDevices, ...]:
        """Return the containers that hold exactly these devices, by the kubelet's checkpoint."""
        entries = await asyncio.to_thread(self._read_checkpoint)
        return tuple(e for e in entries if (e.resource, e.device_ids) == (resource, ids))

    async def with_processes(self) -> tuple[AllocatedDevices, ...]:
        """Return the containers of the kubelet's checkpoint whose pods have processes.

        The checkpoint also has pods that have ended.

        Raises:
            BindError: The processes of the node cannot be read.
        """
        entries = await asyncio.to_thread(self._read_checkpoint)
        running = await self.last.processes({entry.uid for entry in entries})
        return tuple(entry for entry in entries if entry.uid in running)

    async def liveness(self) -> Liveness:
        """Return what distinguishes live bindings from those of containers that are gone.

        Raises:
            BindError: The kubelet gives no answer.
        """
        listed = await self.listed()
        return Liveness(listed, await asyncio.to_thread(self._read_checkpoint), self._kube)

    def _read_checkpoint(self) -> tuple[AllocatedDevices, ...]:
        try:
            return read_checkpoint(self._checkpoint.read_bytes())
        except OSError:
            return ()

    async def find(self, resource: str, ids: frozenset[str]) -> tuple[Pod, str]:
        """Return the pod and the name of the container that hold exactly these devices.

        The kubelet lends the devices of init containers to app containers of the same pod. If both
        hold the same devices, the app container is returned: the init container may use its GPUs,
        since it ends before.

        Raises:
            BindError: No container holds them, or its pod is gone.
            ApiOutage: The API server cannot be asked.
        """
        entries = await self.in_checkpoint(resource, ids)
        for devices in await self.listed():
            if (devices.resource, devices.device_ids) == (resource, ids):
                pod = await self._get(pod_path(devices.namespace, devices.pod), Pod)
                if entries and pod.metadata.uid not in {entry.uid for entry in entries}:
                    raise BindError(
                        f"pod {devices.namespace}/{devices.pod} was replaced by one of the same "
                        "name; the kubelet ends this container"
                    )
                return pod, devices.container
        if entries and (found := await self._init_container(entries)) is not None:
            return found
        raise BindError(
            f"no container of the kubelet's books holds the devices {', '.join(sorted(ids))} of "
            f"{resource}; the kubelet tries again"
        )

    async def _init_container(
        self, entries: Collection[AllocatedDevices]
    ) -> tuple[Pod, str] | None:
        """Return the init container of one of the entries, and its pod.

        The kubelet names the pod of an init container only by its UID. So the pods of the node are
        read one after the other: tenants decide how long they are.
        """
        uids = {entry.uid for entry in entries}
        names = {(entry.uid, entry.container) for entry in entries}
        for path in await self._likely_first(uids):
            try:
                if (await self._get(path, Object)).metadata.uid not in uids:
                    continue
                pod = await self._get(path, Pod)
            except _PodGoneError:
                continue
            for container in pod.spec.init_containers or ():
                if (pod.metadata.uid, container.name) in names:
                    return pod, container.name
        return None

    async def _likely_first(self, uids: Collection[str]) -> tuple[str, ...]:
        """Return the paths of the node's pods, first those with other devices of these UIDs."""
        checkpoint = await asyncio.to_thread(self._read_checkpoint)
        devices = {(entry.resource, entry.device_ids) for entry in checkpoint if entry.uid in uids}
        likely = [
            (part.namespace, part.pod)
            for part in await self.listed()
            if (part.resource, part.device_ids) in devices
        ]
        pods = await _asked(self._lister.pods())
        return tuple(pod_path(*pod) for pod in dict.fromkeys((*likely, *pods)))

    async def _get(self, path: str, returns: type[_T]) -> _T:
        try:
            return await self._kube.get(path, returns)
        except ApiError as error:
            if error.status not in _REFUSED:
                raise ApiOutage(str(error)) from error
            refused = _PodGoneError if error.status == _GONE else BindError
            raise refused(f"the pod of the container cannot be read: {error}") from error
        except Unreachable as error:
            raise ApiOutage(str(error)) from error
        except KubeError as error:
            raise BindError(f"the pod of the container cannot be read: {error}") from error


async def _asked(answer: Awaitable[_T]) -> _T:
    """Return an answer of the kubelet; raises BindError without one."""
    try:
        return await answer
    except KubeletError as error:
        raise BindError(f"the containers of the node cannot be listed: {error}") from error
