"""Replicas of the scorer, and how the one that leads, or its connections, are harmed."""

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGSTOP

from controlplane.history import History
from controlplane.plane import ControlPlane
from controlplane.process import wait_until
from controlplane.relay import Relay
from controlplane.scorer import Scorer, holder, start_scorer

_PATIENCE = 120
_QUICK = {
    "LINKWISE_LEASE_SECONDS": "3",
    "LINKWISE_RENEW_SECONDS": "2",
    "LINKWISE_RETRY_SECONDS": "0.4",
    "LINKWISE_WRITE_SECONDS": "0.5",
}
"""Where the machine is busy, more leaders come and go than are harmed: all the better."""
_LED = r'"term":(\d+)[^\n]*"msg":"Leading"'


class Replicas:
    """Processes of the scorer; who leads changes."""

    def __init__(self, plane: ControlPlane, ways: Sequence[Relay], folder: Path) -> None:
        """Start none yet.

        Args:
            plane: Where.
            ways: To API servers; replicas take them in turn.
            folder: For tokens and logs.
        """
        self.plane, self.ways, self.folder = plane, ways, folder
        self.numbers = count()
        self.running: list[Scorer] = []
        self.without = 0.0
        """For how long the API server was away, or those who work with it [s]."""

    def start(self) -> None:
        """Start one more."""
        number = next(self.numbers)
        server = self.ways[number % len(self.ways)].server
        log = f"scorer-{number}.log"
        self.running.append(start_scorer(self.plane, self.folder, log, server=server, **_QUICK))

    def leader(self) -> Scorer:
        """Return the one that leads, once one does; one that was deposed may not know it yet."""
        found: list[Scorer] = []

        def one_leads() -> bool:
            name = holder(self.plane)
            found[:] = [one for one in self.running if one.process.log.stem == name and one.leads]
            return bool(found)

        wait_until(one_leads, "one leads", _PATIENCE)
        return found[0]

    def kill(self, after: float) -> None:
        """Kill the leader, so long after it began to lead, and start another [s]."""
        leader = self.leader()
        time.sleep(after)
        leader.process.signal(SIGKILL)
        self._replace(leader)

    def end(self, after: float) -> None:
        """End the leader, and start another."""
        leader = self.leader()
        time.sleep(after)
        self._replace(leader)

    def stop_past_its_lease(self, after: float) -> None:
        """Let the leader stand still until another one leads."""
        leader = self.leader()
        time.sleep(after)
        self._stop(leader)

    def stop_while_it_writes(self, history: History) -> None:
        """Let the leader stand still in the middle of its writes, until another one leads."""
        leader = self.leader()
        seen = len(history.writes)
        wait_until(
            lambda: any(write.holds for write in history.writes[seen:]), "it writes", _PATIENCE
        )
        self._stop(leader)

    def lose_the_api_server(self, after: float) -> None:
        """Kill the API server, and start it again."""
        self.leader()
        time.sleep(after)
        began = time.monotonic()
        self.plane.process("kube-apiserver").signal(SIGKILL)
        self.plane.restart_api_server()
        self.without += time.monotonic() - began

    def cut_the_way(self, after: float) -> None:
        """Break all connections to API servers."""
        self.leader()
        time.sleep(after)
        assert all(way.cut() for way in self.ways)

    def silence_the_way(self, after: float) -> None:
        """Let all connections to API servers stay open, and pass nothing on."""
        self.leader()
        time.sleep(after)
        assert all(way.silence() for way in self.ways)

    def terms(self) -> list[int]:
        """Return the terms in which somebody led, in the order of the logs."""
        texts = [path.read_text() for path in sorted(self.folder.glob("scorer-*.log"))]
        return [int(term) for text in texts for term in re.findall(_LED, text)]

    def _replace(self, one: Scorer) -> None:
        self.plane.processes.stop(one.process)
        self.running.remove(one)
        self.start()

    def _stop(self, leader: Scorer) -> None:
        leader.process.signal(SIGSTOP)
        self.running.remove(leader)
        try:
            self.leader()
        finally:
            leader.process.signal(SIGCONT)
            self.running.append(leader)


@contextmanager
def two_replicas(plane: ControlPlane, ways: Sequence[Relay], folder: Path) -> Iterator[Replicas]:
    """Run two while the block runs; arguments as of `Replicas`."""
    replicas = Replicas(plane, ways, folder)
    try:
        replicas.start()
        replicas.start()
        yield replicas
    finally:
        for one in replicas.running:
            plane.processes.stop(one.process)
