"""Processes of pods that are gone: their GPUs are not given again until these have ended.

A pod that is deleted with grace period 0 leaves the books of the API server and of the kubelet at
once, while its processes may run for seconds, or for ever if they hang in the driver.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from agent.binding.cdi_spec import Edits, encode_spec
from agent.binding.container_spec import OLDEST_VERSION, Binding, container_spec
from agent.binding.errors import BindError
from linkwise.runtime.process.clock import Clock, monotonic

RunningPods = Callable[[Collection[str]], Mapping[str, str]]
"""Returns a process of each pod that has one, by the uids of the pods. Blocks; raises OSError."""


class LastHolders:
    """The pods that are gone and have processes."""

    def __init__(
        self, running: RunningPods, clock: Clock = monotonic, *, patience: float = 10
    ) -> None:
        """Know none yet.

        Args:
            running: Lists processes of pods.
            clock: A monotonic clock [s].
            patience: How long a container waits for these processes, and a report about them [s].
                The kubelet ends its call after 30 s.
        """
        self._running, self._clock, self.patience = running, clock, patience
        self._since: dict[str, float] = {}
        """When each pod was first seen, by uid [s]."""
        self._faults: dict[str, str] = {}

    @property
    def faults(self) -> Mapping[str, str]:
        """GPUs that cannot be given for longer than a container waits, by UUID, with the reason."""
        return self._faults

    async def processes(self, uids: Collection[str]) -> Mapping[str, str]:
        """Return a process of each of these pods that has one, by uid.

        Raises:
            BindError: The processes of the node cannot be read.
        """
        if not uids:
            return {}
        try:
            return await asyncio.to_thread(self._running, uids)
        except OSError as error:
            raise BindError(f"the processes of the node cannot be read: {error}") from error

    async def update(self, ended: Collection[Binding]) -> frozenset[Binding]:
        """Return the bindings whose pods have processes.

        Args:
            ended: All bindings whose pods are gone.

        Raises:
            BindError: The processes of the node cannot be read.
        """
        running, now = await self.processes({each.uid for each in ended}), self._clock()
        self._since = {uid: self._since.get(uid, now) for uid in running}
        left = frozenset(each for each in ended if each.uid in running)
        self._faults = {
            gpu.uuid or str(gpu.i): f"{running[each.uid]} of a deleted pod (uid {each.uid}) "
            "has not ended: end it, or reboot the node"
            for each in left
            if now >= self._since[each.uid] + self.patience
            for gpu in each.gpus
        }
        return left


def set_aside(binding: Binding) -> tuple[str, bytes]:
    """Return a device that no container has, and its file, for the binding of a pod that is gone.

    The kubelet may give its device ids, after which its own file is named, to the next container.
    """
    kept = replace(binding, device_ids=frozenset({f"{binding.uid}/{binding.container}"}))
    return kept.device, encode_spec(container_spec(kept, Edits(), Edits(), OLDEST_VERSION))
