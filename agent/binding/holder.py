"""The container that holds a set of device ids, and its pod."""

import asyncio
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Protocol, TypeVar

from msgspec import Raw, Struct
from msgspec.json import Decoder

from agent.binding.errors import BindError
from agent.binding.liveness import Liveness
from agent.kubelet.call import KubeletError
from agent.kubelet.checkpoint import AllocatedDevices, read_checkpoint
from agent.kubelet.container_devices import ContainerDevices
from cluster.kube_object import pod_path
from cluster.pod import Pod
from runtime.kube.client import ApiError, Kube, KubeError, Unreachable
from runtime.kube.decode import decode

_T = TypeVar("_T")
_ALL: Mapping[str, str] = {}
_MAX_LIST = 32 << 20
"""Longest list of the pods of a node [bytes]: tenants decide how long their pods are."""
_REFUSED = frozenset({400, 401, 403, 404, 410})
"""Answers of the API server that do not change by themselves."""


class DeviceLister(Protocol):
    """The kubelet's PodResources service."""

    async def list(self) -> tuple[ContainerDevices, ...]:
        """Return the devices of all app and sidecar containers; raises KubeletError."""


class _PodList(Struct, frozen=True):
    items: list[Raw]


class _Metadata(Struct, frozen=True):
    uid: str = ""


class _Identity(Struct, frozen=True):
    metadata: _Metadata = _Metadata()


_identities, _pods = Decoder(_Identity), Decoder(Pod)


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

    async def in_checkpoint(
        self, resource: str, ids: frozenset[str]
    ) -> tuple[AllocatedDevices, ...]:
        """Return the containers that hold exactly these devices, by the kubelet's checkpoint."""
        entries = await asyncio.to_thread(self._read_checkpoint)
        return tuple(e for e in entries if (e.resource, e.device_ids) == (resource, ids))

    async def liveness(self) -> Liveness:
        """Return what tells live bindings from those of containers that are gone.

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
        if entries and (found := await self._init_container(entries)):
            return found
        raise BindError(
            f"no container of the kubelet's books holds the devices {', '.join(sorted(ids))} of "
            f"{resource}; the kubelet tries again"
        )

    async def _init_container(self, entries: Iterable[AllocatedDevices]) -> tuple[Pod, str] | None:
        """Return the init container of one of the entries, and its pod."""
        of_node = {"fieldSelector": f"spec.nodeName={self.node}"}
        pods = await self._get("/api/v1/pods", _PodList, of_node, _MAX_LIST)
        names = {(entry.uid, entry.container) for entry in entries}
        uids = {uid for uid, _ in names}
        for item in pods.items:
            if decode(item, _identities).metadata.uid in uids:
                pod = decode(item, _pods)
                for container in pod.spec.init_containers or ():
                    if (pod.metadata.uid, container.name) in names:
                        return pod, container.name
        return None

    async def _get(
        self,
        path: str,
        returns: type[_T],
        params: Mapping[str, str] = _ALL,
        max_bytes: int | None = None,
    ) -> _T:
        try:
            return await self._kube.get(path, returns, params=params, max_bytes=max_bytes)
        except ApiError as error:
            if error.status not in _REFUSED:
                raise ApiOutage(str(error)) from error
            raise BindError(f"the pod of the container cannot be read: {error}") from error
        except Unreachable as error:
            raise ApiOutage(str(error)) from error
        except KubeError as error:
            raise BindError(f"the pod of the container cannot be read: {error}") from error
