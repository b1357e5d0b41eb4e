"""Submit gangs as another user of the cluster, and measure how long each takes."""

import time
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count

from controlplane.api import ApiError
from controlplane.background import Background
from controlplane.gangs import make_gang, where
from controlplane.pods import Pods
from controlplane.process import NotReadyError, wait_until

SIZE = 4
"""Pods of a gang, of one GPU each."""
_PERIOD = 1
"""Between the beginnings of two gangs, where the first is bound sooner [s]."""
_PATIENCE = 20


@dataclass(slots=True)
class OtherTenantGangs(Background):
    """A gang every second, deleted once all of it is bound; use it in `with`."""

    pods: Pods
    waited: list[float] = field(default_factory=list)
    """Of each gang: from the first attempt to create a pod until all are bound, or until this gave
    up [s]."""
    begun: int = 0

    def more(self, gangs: int) -> None:
        """Return when this number of further gangs are bound or given up."""
        enough = self.begun + gangs
        wait_until(lambda: len(self.waited) >= enough, f"{gangs} more gangs", 30 * gangs)

    def _run(self) -> None:
        for number in count():
            began = time.monotonic()
            self.begun += 1
            gang = f"honest-{number}"
            with suppress(NotReadyError):
                wait_until(lambda name=gang: self._is_bound(name), f"{gang} is bound", _PATIENCE)
            self.waited.append(time.monotonic() - began)
            wait_until(lambda name=gang: self._is_gone(name), f"{gang} is gone")
            if self._over.wait(max(0.0, began + _PERIOD - time.monotonic())):
                return

    def _is_bound(self, gang: str) -> bool:
        """Create missing pods, as a controller does; return whether all are bound."""
        there = self.pods.all()
        for index in range(SIZE):
            if f"{gang}-{index}" not in there:
                make_gang(self.pods, gang, SIZE, 1, [index])
        return len(where(self.pods, gang)) == SIZE

    def _is_gone(self, gang: str) -> bool:
        for name in self.pods.all():
            if name.startswith(f"{gang}-"):
                with suppress(ApiError):
                    self.pods.api.delete(f"{self.pods.path}/{name}", gracePeriodSeconds="0")
        return not any(name.startswith(f"{gang}-") for name in self.pods.all())
