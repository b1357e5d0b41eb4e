"""Existence of the containers of bindings, by the kubelet's books and the API server."""

from collections.abc import Iterable
from enum import Enum, auto

from agent.binding.container_spec import Binding
from agent.kubelet.checkpoint import AllocatedDevices
from agent.kubelet.container_devices import ContainerDevices
from linkwise.cluster.objects.kube_object import pod_path
from linkwise.cluster.objects.pod import Pod
from linkwise.runtime.kube.client import ApiError, Kube, KubeError, Unreachable

_TERMINAL = frozenset({"Succeeded", "Failed"})
_NOT_FOUND = 404


class Hold(Enum):
    """What the books say about a binding."""

    LIVE = auto()
    """Its container holds the devices, or this is unknown."""
    REPLACED = auto()
    """Its container, in the same pod, holds other devices now."""
    ENDED = auto()
    """Its pod is gone or has ended; processes of it may run on."""


class Liveness:
    """The books of the kubelet at one moment; each pod is read at most once."""

    def __init__(
        self,
        listed: Iterable[ContainerDevices],
        checkpoint: Iterable[AllocatedDevices],
        kube: Kube,
    ) -> None:
        """Prepare.

        Args:
            listed: Devices of all containers, as PodResources lists them.
            checkpoint: Devices of all containers in the kubelet's checkpoint, read after that.
            kube: The API server.
        """
        self.listed, self._checkpoint, self._kube = tuple(listed), tuple(checkpoint), kube
        self._uids: dict[str, str | None] = {}
        """UID of the pod at each path that was read; None: it has ended."""
        self._reachable = True

    async def hold(self, binding: Binding) -> Hold:
        """Return whether a container still holds the devices of a binding.

        PodResources lacks init containers that end early, and after a restart of the kubelet all
        containers for a moment, so a pod that is not listed is read from the API server.
        """
        of_pod = [
            each
            for each in self.listed
            if (each.namespace, each.pod, each.resource)
            == (binding.namespace, binding.pod, binding.resource)
        ]
        if any(each.device_ids == binding.device_ids for each in of_pod):
            # PodResources has no uids: the next pod of this name may hold these devices.
            uids = {
                each.uid
                for each in self._checkpoint
                if (each.resource, each.device_ids) == (binding.resource, binding.device_ids)
            }
            return Hold.LIVE if not uids or binding.uid in uids else Hold.ENDED
        if any(each.container == binding.container for each in of_pod):
            same_pod = any(each.uid == binding.uid for each in self._checkpoint)
            return Hold.REPLACED if same_pod else Hold.ENDED
        return Hold.ENDED if await self._is_gone(binding) else Hold.LIVE

    async def _is_gone(self, binding: Binding) -> bool:
        """Return whether the pod of a binding has ended; False without an answer."""
        path = pod_path(binding.namespace, binding.pod)
        if path not in self._uids:
            # Without the API server, each call would take its whole timeout.
            if not self._reachable:
                return False
            try:
                pod = await self._kube.get(path, Pod)
            except KubeError as error:
                if not (isinstance(error, ApiError) and error.status == _NOT_FOUND):
                    self._reachable = not isinstance(error, Unreachable)
                    return False
                self._uids[path] = None
            else:
                ended = pod.status.phase in _TERMINAL
                self._uids[path] = None if ended else pod.metadata.uid
        return self._uids[path] != binding.uid
