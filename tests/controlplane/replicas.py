"""Replicas of the scorer, and faults of the leader and of its connections."""

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGSTOP

from controlplane.history import History
from controlplane.plane import ControlPlane
from controlplane.process import wait_for, wait_until
from controlplane.relay import Relay
from controlplane.scorer import Scorer, holder, start_scorer

_PATIENCE = 120
_QUICK = {
    "LINKWISE_LEASE_SECONDS": "3",
    "LINKWISE_RENEW_SECONDS": "2",
    "LINKWISE_RETRY_SECONDS": "0.4",
    "LINKWISE_WRITE_SECONDS": "0.5",
}
"""On a busy machine leadership also changes without a fault, which tests more."""
_LED = r'"term":(\d+)[^\n]*"msg":"Leading"'


class Replicas:
    """Processes of the scorer, one of which leads."""

    def __init__(self, plane: ControlPlane, ways: Sequence[Relay], folder: Path) -> None:
        """Start no process yet.

        Args:
            plane: The control plane.
            ways: Relays to API servers; replicas use them in turn.
            folder: For tokens and logs.
        """
        self.plane, self.ways, self.folder = plane, ways, folder
        self.numbers = count()
        self.running: list[Scorer] = []
        self.without = 0.0
        """How long the API server and its clients were down [s]."""

    def start(self) -> None:
        """Start another replica."""
        number = next(self.numbers)
        server = self.ways[number % len(self.ways)].server
        log = f"scorer-{number}.log"
        self.running.append(start_scorer(self.plane, self.folder, log, server=server, **_QUICK))

    def leader(self) -> Scorer:
        """Wait for a leader that holds the Lease; return it.

        A former leader may still believe that it leads.
        """

        def leaders() -> list[Scorer]:
            name = holder(self.plane)
            return [one for one in self.running if one.process.log.stem == name and one.leads]

        return wait_for(leaders, "one leads", _PATIENCE)[0]

    def kill(self, after: float) -> None:
        """Kill the leader this long after it began to lead, and start another replica [s]."""
        leader = self.leader()
        time.sleep(after)
        leader.process.signal(SIGKILL)
        self._replace(leader)

    def end(self, after: float) -> None:
        """Terminate the leader, and start another replica."""
        leader = self.leader()
        time.sleep(after)
        self._replace(leader)

    def stop_past_its_lease(self, after: float) -> None:
        """Stop the leader's process until another replica leads; then continue it."""
        leader = self.leader()
        time.sleep(after)
        self._stop(leader)

    def stop_while_it_writes(self, history: History) -> None:
        """Stop the leader's process while it writes; continue it when another replica leads."""
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
        """Keep all connections to API servers open, and forward nothing."""
        self.leader()
        time.sleep(after)
        assert all(way.silence() for way in self.ways)

    def terms(self) -> list[int]:
        """Return the terms of all leaders, in the order of the logs."""
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
    """Run two replicas while the block runs; arguments as of `Replicas`."""
    replicas = Replicas(plane, ways, folder)
    try:
        replicas.start()
        replicas.start()
        yield replicas
    finally:
        for one in replicas.running:
            plane.processes.stop(one.process)
