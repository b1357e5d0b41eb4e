"""A leader that is killed between the writes of one gang, beside a replica that stands by."""

import json
from itertools import count
from signal import SIGKILL

import pytest
from controlplane.gangs import make_gang, wait_for_phase, wait_until_placed
from controlplane.killer import BEFORE, Killer
from controlplane.process import wait_until
from controlplane.scorer import Scorer, holder, start_scorer

from cluster import keys

_LEASE = {
    "LINKWISE_LEASE_SECONDS": "600",
    "LINKWISE_RENEW_SECONDS": "500",
    "LINKWISE_ADDRESS": "127.0.0.1",
}
"""No test waits for the duration of such a Lease."""


class BetweenPods(Killer):
    """Kills the client before one of its writes of pods."""

    at = 0
    _pods = count(1)

    def _cut(self, method: str, write: str) -> str:
        is_pod = method == "PATCH" and "/pods/" in write
        is_cut = self.armed and is_pod and next(self._pods) == self.at
        self.killed += [write] if is_cut else []
        return BEFORE if is_cut else ""


@pytest.mark.parametrize("at", [1, 3, 8], ids=["before the first", "amid", "before the last"])
@pytest.mark.usefixtures("webhook")
def test_a_gang_is_completed_without_waiting_for_the_lease_of_a_killed_leader(
    plane, pods, machines, tmp_path, at
):
    machines(1)
    started: list[Scorer] = []

    def kill() -> None:
        started[0].process.signal(SIGKILL)

    with BetweenPods(plane.server, str(plane.ca_file), kill) as killer:
        killer.at, killer._pods = at, count(1)
        try:
            for name, server in (("first", killer.server), ("second", "")):
                log = f"{name}.log"
                started.append(start_scorer(plane, tmp_path, log, server=server, **_LEASE))
            wait_until(lambda: holder(plane) == "first", "the first replica leads", 120)
            killer.armed = True
            make_gang(pods, "bert", 8, 1)
            gpus = [gpu for held in wait_until_placed(pods, "bert", 8).values() for gpu in held]
            assert len(set(gpus)) == 8
            wait_for_phase(pods, "bert", "Placed", members="8/8")
            assert len(killer.killed) == 1
            assert holder(plane) == "second"
            made = [pod["metadata"]["annotations"] for pod in pods.all().values()]
            assert len({json.loads(each[keys.ALLOCATION])["plan"] for each in made}) == 1
        finally:
            for scorer in started:
                plane.processes.stop(scorer.process)
