"""A leader that is killed between the writes of one gang, beside a replica that stands by."""

import json
import re
from contextlib import contextmanager
from itertools import count
from signal import SIGKILL

import pytest
from controlplane.gangs import make_gang, make_stateful_gang, wait_for_phase, wait_until_placed
from controlplane.killer import BEFORE, Killer
from controlplane.pods import container
from controlplane.process import wait_until
from controlplane.scorer import Scorer, holder, start_scorer
from controlplane.temporary import priority_class

from linkwise.cluster import keys

_LEASE = {
    "LINKWISE_LEASE_SECONDS": "600",
    "LINKWISE_RENEW_SECONDS": "500",
    "LINKWISE_ADDRESS": "127.0.0.1",
}
"""No test waits for the duration of such a Lease."""


class BetweenPods(Killer):
    """Kills the client before one of its writes of pods."""

    at = 0
    writes = re.compile("PATCH .*/pods/[^/]*")
    _pods = count(1)

    def _cut(self, method: str, write: str) -> str:
        del method
        is_pod = self.writes.fullmatch(write)
        is_cut = self.armed and is_pod and next(self._pods) == self.at
        self.killed += [write] if is_cut else []
        return BEFORE if is_cut else ""


@contextmanager
def two_replicas(plane, folder, at):
    """Run a replica that leads and one that stands by; yield the proxy that kills the first."""
    started: list[Scorer] = []

    def kill() -> None:
        started[0].process.signal(SIGKILL)

    with BetweenPods(plane.server, str(plane.ca_file), kill) as killer:
        killer.at, killer._pods = at, count(1)
        try:
            for name, server in (("first", killer.server), ("second", "")):
                log = f"{name}.log"
                started.append(start_scorer(plane, folder, log, server=server, **_LEASE))
            wait_until(lambda: holder(plane) == "first", "the first replica leads", 120)
            yield killer
            assert len(killer.killed) == 1
            assert holder(plane) == "second"
        finally:
            for scorer in started:
                plane.processes.stop(scorer.process)


@pytest.mark.parametrize("at", [1, 3, 8], ids=["before the first", "amid", "before the last"])
@pytest.mark.usefixtures("webhook")
def test_a_gang_is_completed_without_waiting_for_the_lease_of_a_killed_leader(
    plane, pods, machines, tmp_path, at
):
    machines(1)
    with two_replicas(plane, tmp_path, at) as killer:
        killer.armed = True
        make_gang(pods, "bert", 8, 1)
        gpus = [gpu for held in wait_until_placed(pods, "bert", 8).values() for gpu in held]
        assert len(set(gpus)) == 8
        wait_for_phase(pods, "bert", "Placed", members="8/8")
        made = [pod["metadata"]["annotations"] for pod in pods.all().values()]
        assert len({json.loads(each[keys.ALLOCATION])["plan"] for each in made}) == 1


@pytest.fixture
def urgent(pods, policy):
    """A priority class for pods that preempt."""
    policy(
        "apiVersion: linkwise.dev/v1alpha1\nkind: Policy\ngangs: {preemption: {minRunMinutes: 0}}"
    )
    with priority_class(pods, "urgent", 1000):
        yield {"priorityClassName": "urgent"}


def test_a_killed_leader_and_the_next_one_evict_one_gang_for_a_single_pod(
    plane, pods, machines, urgent, history, tmp_path
):
    machines(2)
    spec = {"containers": [container({keys.GPU_WHOLE: 4})], "terminationGracePeriodSeconds": 1}
    with two_replicas(plane, tmp_path, 2) as killer:
        killer.writes = re.compile("POST .*/eviction/[^/]*")
        sets = []
        for name in ("low", "same"):
            sets.append(make_stateful_gang(pods, name, 2, spec))
            wait_until_placed(pods, name, 2)
        killer.armed = True
        pods.create({keys.GPU_WHOLE: 8}, name="high", spec=urgent)
        wait_until(lambda: "high" in pods.bound(), "it is bound", 120)
    history.catch_up()
    evicted = history.evictions(pods.namespace)
    # All of one gang were evicted once, and none of the other.
    assert evicted in ({"low-0": 1, "low-1": 1}, {"same-0": 1, "same-1": 1})
    for path in sets:
        pods.api.delete(path)
