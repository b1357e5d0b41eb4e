"""Clients that create pods one after another, and record the results."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from threading import Event, Lock, Thread
from typing import Self

from controlplane.api import Api, ApiError, Object
from controlplane.process import wait_until

PAUSE = 0.1
"""Between two creations of one client [s]: each pod takes time to delete, too."""


@dataclass(slots=True)
class Load:
    """Use it in `with`: the clients create pods while the block runs. They do not retry."""

    api: Api
    path: str
    """The collection of pods."""
    body: Callable[[int], Object]
    """Returns the pod with a number; each number is used once."""
    clients: int = 4
    created: list[Object] = field(default_factory=list)
    failed: list[tuple[Object, str]] = field(default_factory=list)
    """The pods that were not created, and why."""
    _numbers: Iterator[int] = field(default_factory=count)
    _over: Event = field(default_factory=Event)
    _lock: Lock = field(default_factory=Lock)
    _threads: list[Thread] = field(default_factory=list)

    def __enter__(self) -> Self:
        self._threads = [Thread(target=self._create) for _ in range(self.clients)]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def goes_on(self, more: int = 50) -> None:
        """Return when this number of further pods is created.

        Raises:
            NotReadyError: They were not created within 5 minutes.
        """
        enough = len(self.created) + more
        wait_until(lambda: len(self.created) >= enough, f"{more} more pods are created", 300)

    def _create(self) -> None:
        while not self._over.wait(PAUSE):
            with self._lock:
                body = self.body(next(self._numbers))
            try:
                self.created.append(self.api.create(self.path, body))
            except (ApiError, OSError) as error:
                self.failed.append((body, str(error)))
