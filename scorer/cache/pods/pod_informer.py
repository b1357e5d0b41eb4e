"""Watch all pods; read pods that exceeded the memory budget again once they fit."""

import asyncio
from collections.abc import Callable, Mapping, Set

import structlog
from msgspec import Raw

from linkwise.cluster.objects.kube_object import pod_path
from linkwise.planning.gang.pod_info import PodInfo
from linkwise.planning.state.memory_budget import MemoryBudget
from linkwise.runtime.kube.client import Kube, KubeError
from linkwise.runtime.kube.objects import Key
from linkwise.runtime.kube.reflector import Reflector
from scorer.cache.pods.partial_pod import read_pod

_RETRY = 5.0
"""After a pod could not be read [s]."""

_log = structlog.get_logger()


class PodInformer:
    """All pods, within the memory budget."""

    def __init__(
        self, kube: Kube, on_change: Callable[[Mapping[Key, PodInfo], Set[Key]], None]
    ) -> None:
        """Prepare the watch; `run` reads pods again.

        Args:
            kube: The API server.
            on_change: Called as by a `Reflector`.
        """
        self._kube, self._on_change = kube, on_change
        self._budget = MemoryBudget()
        self._room = asyncio.Event()
        """Set when a pod that is not kept may fit, or a pod that is kept must be dropped."""
        self.ended: set[str] = set()
        """Uids of the changed pods whose containers had ended when they were deleted."""
        self.reflector = Reflector(
            kube,
            "/api/v1/pods",
            self._read,
            on_change=self._changed,
            on_deleted=self._deleted,
        )

    @property
    def left_out(self) -> int:
        """The number of waiting pods that exceed the budget."""
        return len(self._budget)

    async def run(self) -> None:
        """Shrink pods that were dropped, and read pods that fit again, until cancelled."""
        while True:
            await self._room.wait()
            self._room.clear()
            self._shrink_dropped()
            while (key := self._budget.fitting()) is not None:
                await self._read_again(key)
                self._shrink_dropped()

    def _shrink_dropped(self) -> None:
        """Shrink pods that were dropped. A pod of a list that is being read is shrunk later."""
        for key in self._budget.dropped:
            if (pod := self.reflector.items.get(key)) is not None:
                self.reflector.replace(key, self._budget.shrink(pod))

    def _read(self, raw: Raw) -> PodInfo:
        return self._budget.take(read_pod(raw))

    def _changed(self, items: Mapping[Key, PodInfo], changed: Set[Key]) -> None:
        for key in changed:
            if (pod := items.get(key)) is None:
                self._budget.release(key)
            else:
                self._budget.confirm(pod)
        if self._budget.dropped or self._budget.fitting():
            self._room.set()
        self._on_change(items, changed)
        self.ended.clear()

    def _deleted(self, raw: Raw) -> None:
        pod = read_pod(raw)
        # The kubelet removes a pod once it has written that all its containers have ended.
        if pod.usage is None:
            self.ended.add(pod.uid)

    async def _read_again(self, key: Key) -> None:
        namespace, name = key
        try:
            raw = await self._kube.find(pod_path(namespace, name), Raw)
        except KubeError as error:
            _log.warning("Could not read pod", pod=f"{namespace}/{name}", err=str(error))
            await asyncio.sleep(_RETRY)
            return
        if raw is None:
            # The watch reports the deletion.
            self._budget.release(key)
            return
        pod, known = self._read(raw), self.reflector.items.get(key)
        if known is None:
            self._budget.release(key)
        elif known.version == pod.version:
            self.reflector.replace(key, pod)
        # Otherwise the watch is about to deliver a newer version.
