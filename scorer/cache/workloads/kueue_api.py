"""Find out whether Kueue is installed: without it, its labels are only texts of users."""

import asyncio

import structlog
from msgspec import Struct

from linkwise.runtime.kube.client import Kube, KubeError

_GROUP = "/apis/kueue.x-k8s.io"
_INTERVAL = 60.0
"""Between two questions [s]."""

_log = structlog.get_logger()


class _Group(Struct, frozen=True):
    """What is read of the answer: that there is one."""


class KueueAPI:
    """Whether the API server has Kueue's API."""

    def __init__(self, kube: Kube) -> None:
        """Prepare the first question."""
        self._kube = kube
        self.is_served = True
        """Also until the first answer, since no pod of Kueue must be evicted."""

    async def run(self) -> None:
        """Ask again and again, until cancelled. Kueue may be installed, or removed, at any time."""
        while True:
            try:
                self.is_served = await self._kube.find(_GROUP, _Group) is not None
            except KubeError as error:
                _log.warning("Lost watch", resource=_GROUP, err=str(error))
            await asyncio.sleep(_INTERVAL)
