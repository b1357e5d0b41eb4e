"""Two replicas of the scorer, and what they lean on, harmed at any moment.

The active replica dies, stops or ends; the API server dies; connections to it break or fall silent.
`make soak` does it more often.
"""

from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest
from controlplane.history import History
from controlplane.random_gangs import PASSING, Crowd, check
from controlplane.relay import Relay
from controlplane.replicas import Replicas, two_replicas
from controlplane.soak import long, often

COMMIT_DEADLINE = 60
"""As it is shipped [s]."""


@pytest.fixture(scope="module")
def plane(plane_with_history):
    return plane_with_history


@pytest.fixture
def replicas(webhook, policy, tmp_path):
    policy(PASSING)
    plane = webhook.plane
    with (
        Relay(lambda: (plane.site.ports["kube-apiserver"],)) as way,
        two_replicas(plane, [way], tmp_path) as running,
    ):
        yield running


@pytest.mark.timeout(1500)
@pytest.mark.parametrize(
    ("harm", "times", "each_leads"),
    [
        pytest.param(Replicas.kill, often(2, 50), True, id="killed"),
        pytest.param(Replicas.stop_past_its_lease, often(1, 10), True, id="stopped and continued"),
        pytest.param(Replicas.end, often(1, 5), True, id="ended"),
        pytest.param(Replicas.lose_the_api_server, often(1, 3), False, id="API server killed"),
        pytest.param(Replicas.cut_the_way, often(1, 10), False, id="connections cut"),
        pytest.param(
            Replicas.silence_the_way, often(1, 5), False, id="connections silent", marks=long
        ),
    ],
)
def test_gangs_are_placed_whole_after_faults_of_the_leader(
    pods, machines, replicas, harm, times, each_leads
):
    random = Random(7)  # noqa: S311 - the same gangs in every run.
    nodes = tuple(node.name for node in machines(16))
    with History(pods.api) as history:
        crowd = Crowd(pods, history, nodes, random)
        for _ in range(times):
            # What waits meanwhile is placed at once when one leads: then it is harmed.
            with ThreadPoolExecutor(1) as other:
                harmed = other.submit(harm, replicas, random.uniform(0, 1))
                crowd.come_and_end(often(8, 60 // times + 3))
                harmed.result()
        crowd.run_out()
        check(history, COMMIT_DEADLINE + replicas.without)
    assert crowd.ended == crowd.shapes.keys()
    if each_leads:
        replicas.leader()
    terms = replicas.terms()
    assert len(set(terms)) == len(terms) >= (times + 1 if each_leads else 1)
