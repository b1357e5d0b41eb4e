"""Two replicas of the scorer, and what they lean on, harmed at any moment.

The active replica dies, stops or ends; the API server dies; connections to it break or fall silent.
"""

import re
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from random import Random

import pytest
from controlplane.crowd import PASSING, Crowd, check
from controlplane.history import History
from controlplane.process import wait_until
from controlplane.relay import Relay
from controlplane.scorer import start_scorer

COMMIT_DEADLINE = 60
"""As it is shipped [s]."""
PATIENCE = 120
QUICK = {
    "LINKWISE_LEASE_SECONDS": "3",
    "LINKWISE_RENEW_SECONDS": "2",
    "LINKWISE_RETRY_SECONDS": "0.4",
    "LINKWISE_WRITE_SECONDS": "0.5",
}
"""Where the machine is busy, more leaders come and go than are harmed: all the better."""


@pytest.fixture(scope="module")
def plane(plane_with_history):
    return plane_with_history


@pytest.fixture
def replicas(webhook, policy, tmp_path):
    policy(PASSING)
    plane = webhook.plane
    with Relay(lambda: (plane.site.ports["kube-apiserver"],)) as way:
        running = Replicas(plane, way, tmp_path)
        running.start()
        running.start()
        yield running
        for one in running.running:
            plane.processes.stop(one.process)


class Replicas:
    """Processes of the scorer; who leads changes."""

    def __init__(self, plane, way, folder):
        self.plane, self.way, self.folder = plane, way, folder
        self.numbers, self.running = count(), []
        self.without = 0.0
        """For how long the API server was away, or those who work with it [s]."""

    def start(self):
        log = f"scorer-{next(self.numbers)}.log"
        self.running.append(
            start_scorer(self.plane, self.folder, log, server=self.way.server, **QUICK)
        )

    def leader(self):
        found = []

        def one_leads():
            found[:] = [one for one in self.running if one.leads]
            return bool(found)

        wait_until(one_leads, "one leads", PATIENCE)
        return found[0]

    def kill(self, after):
        leader = self.leader()
        time.sleep(after)
        leader.process.signal(signal.SIGKILL)
        self.plane.processes.stop(leader.process)
        self.running.remove(leader)
        self.start()

    def end(self, after):
        leader = self.leader()
        time.sleep(after)
        self.plane.processes.stop(leader.process)
        self.running.remove(leader)
        self.start()

    def stop_past_its_lease(self, after):
        leader = self.leader()
        time.sleep(after)
        leader.process.signal(signal.SIGSTOP)
        self.running.remove(leader)
        try:
            other = self.leader()
        finally:
            leader.process.signal(signal.SIGCONT)
            self.running.append(leader)
        assert other is not leader

    def lose_the_api_server(self, after):
        self.leader()
        time.sleep(after)
        began = time.monotonic()
        self.plane.process("kube-apiserver").signal(signal.SIGKILL)
        self.plane.restart_api_server()
        self.without += time.monotonic() - began

    def cut_the_way(self, after):
        self.leader()
        time.sleep(after)
        assert self.way.cut()

    def silence_the_way(self, after):
        self.leader()
        time.sleep(after)
        assert self.way.silence()

    def terms(self):
        """Return the terms in which somebody led, in the order of the logs."""
        texts = [path.read_text() for path in sorted(self.folder.glob("scorer-*.log"))]
        return [int(term) for text in texts for term in re.findall(LED, text)]


LED = r'"term":(\d+)[^\n]*"msg":"Leading"'


@pytest.mark.timeout(1500)
@pytest.mark.parametrize(
    ("harm", "times", "leaders"),
    [
        pytest.param(Replicas.kill, 50, 51, id="killed"),
        pytest.param(Replicas.stop_past_its_lease, 10, 11, id="stopped and continued"),
        pytest.param(Replicas.end, 5, 6, id="ended"),
        pytest.param(Replicas.lose_the_api_server, 3, 1, id="API server killed"),
        pytest.param(Replicas.cut_the_way, 10, 1, id="connections cut"),
        pytest.param(Replicas.silence_the_way, 5, 1, id="connections silent"),
    ],
)
def test_gangs_are_placed_whole_whatever_becomes_of_the_leader(
    pods, machines, replicas, harm, times, leaders
):
    random = Random(7)  # noqa: S311 - the same gangs in every run.
    nodes = tuple(node.name for node in machines(16))
    with History(pods.api) as history:
        crowd = Crowd(pods, history, nodes, random)
        for _ in range(times):
            # What waits meanwhile is placed at once when one leads: then it is harmed.
            with ThreadPoolExecutor(1) as other:
                harmed = other.submit(harm, replicas, random.uniform(0, 1))
                crowd.come_and_end(60 // times + 3)
                harmed.result()
        crowd.run_out()
        check(history, COMMIT_DEADLINE + replicas.without)
    assert crowd.ended == crowd.shapes.keys()
    terms = replicas.terms()
    assert len(set(terms)) == len(terms) >= leaders
