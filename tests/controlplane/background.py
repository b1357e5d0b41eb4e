"""Run work in a thread while a test runs."""

from dataclasses import dataclass, field
from threading import Event, Thread
from typing import Self


@dataclass(slots=True)
class Background:
    """Runs `_run` in a thread during a `with` block; `_run` returns soon after `_over` is set."""

    _over: Event = field(default_factory=Event, init=False)
    _thread: Thread = field(init=False)

    def __enter__(self) -> Self:
        self._prepare()
        self._thread = Thread(target=self._run)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _prepare(self) -> None:
        """Prepare; the block begins afterwards."""

    def _run(self) -> None:
        raise NotImplementedError
