"""Read something about some pods from the API server, rarely and few at a time, and keep it."""

import math
from collections.abc import Awaitable, Callable, Iterable
from typing import Generic, TypeVar

import structlog

from linkwise.planning.gang.pod_info import PodInfo
from linkwise.runtime.kube.client import KubeError

T = TypeVar("T")

_READS_MAX = 64
"""In one pass."""
_RETRY = 60.0
"""After an error [s]."""

_log = structlog.get_logger()


class PacedReads(Generic[T]):
    """What was read last about each of some pods."""

    def __init__(self, read: Callable[[PodInfo], Awaitable[T | None]], interval: float) -> None:
        """Read nothing yet.

        Args:
            read: Reads about one pod; None: nothing new. It may raise KubeError.
            interval: Between two reads about one pod [s].
        """
        self._read_one, self._interval = read, interval
        self._values: dict[str, T] = {}
        self._due: dict[str, float] = {}
        """By uid of the pod: when it is read again [s since 1970]."""

    def of(self, pod: PodInfo) -> T | None:
        """Return what was read about a pod; None: nothing."""
        return self._values.get(pod.uid)

    def is_read(self, pod: PodInfo) -> bool:
        """Return whether it was tried to read about a pod."""
        return pod.uid in self._due

    async def read(self, pods: Iterable[PodInfo], now: float) -> list[PodInfo]:
        """Read about the pods that are due; return those about which something has changed.

        New pods are first, then those that are due for longest. After an error the others wait for
        the next pass.

        Args:
            pods: All of them; what is known about others is forgotten.
            now: Seconds since 1970.
        """
        by_uid = {pod.uid: pod for pod in pods}
        self._values = {uid: value for uid, value in self._values.items() if uid in by_uid}
        self._due = {uid: time for uid, time in self._due.items() if uid in by_uid}
        times = {uid: self._due.get(uid, -math.inf) for uid in by_uid}
        due = sorted((uid for uid in by_uid if times[uid] <= now), key=times.__getitem__)
        changed = []
        for uid in due[:_READS_MAX]:
            pod = by_uid[uid]
            try:
                value = await self._read_one(pod)
            except KubeError as error:
                _log.warning("Could not read about pod", pod="/".join(pod.key), err=str(error))
                # The others are first in the next pass.
                self._due |= {**dict.fromkeys(due, now), uid: now + _RETRY}
                break
            self._due[uid] = now + self._interval
            if value is not None and value != self._values.get(uid):
                self._values[uid] = value
                changed.append(pod)
        return changed
