"""Two replicas of the scorer of which the active one dies or stops, at any moment."""

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
from controlplane.scorer import QUICK, start_scorer

COMMIT_DEADLINE = 60
"""As it is shipped [s]."""
PATIENCE = 120


@pytest.fixture
def replicas(webhook, policy, tmp_path):
    policy(PASSING)
    running = Replicas(webhook.plane, tmp_path)
    running.start()
    running.start()
    yield running
    for one in running.running:
        running.plane.processes.stop(one.process)


class Replicas:
    """Processes of the scorer; who leads changes."""

    def __init__(self, plane, folder):
        self.plane, self.folder, self.numbers, self.running = plane, folder, count(), []

    def start(self):
        log = f"scorer-{next(self.numbers)}.log"
        self.running.append(start_scorer(self.plane, self.folder, log, **QUICK))

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

    def terms(self):
        """Return the terms in which somebody led, in the order of the logs."""
        texts = [path.read_text() for path in sorted(self.folder.glob("scorer-*.log"))]
        return [int(term) for text in texts for term in re.findall(LED, text)]


LED = r'"term":(\d+)[^\n]*"msg":"Leading"'


@pytest.mark.timeout(1500)
@pytest.mark.parametrize(
    ("harm", "times"),
    [
        pytest.param(Replicas.kill, 5, id="killed"),
        pytest.param(Replicas.stop_past_its_lease, 3, id="stopped and continued"),
        pytest.param(Replicas.end, 2, id="ended"),
    ],
)
def test_gangs_are_placed_whole_whatever_becomes_of_the_leader(
    pods, machines, replicas, harm, times
):
    random = Random(7)  # noqa: S311 - the same gangs in every run.
    nodes = tuple(node.name for node in machines(16))
    with History(pods.api) as history:
        crowd = Crowd(pods, history, nodes, random)
        for _ in range(times):
            # What waits meanwhile is placed at once when one leads: then it is harmed.
            with ThreadPoolExecutor(1) as other:
                harmed = other.submit(harm, replicas, random.uniform(0, 2))
                crowd.come_and_end(12)
                harmed.result()
        crowd.run_out()
        check(history, COMMIT_DEADLINE)
    assert crowd.ended == crowd.shapes.keys()
    terms = replicas.terms()
    assert len(set(terms)) == len(terms) > times
