"""No GPU is given twice: leaders stop while they write, the webhook is slow, watches lag.

Each is done once, or as often as the environment says (`make soak`), with other gangs each time.
"""

import base64
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from random import Random

import pytest
from controlplane.history import History
from controlplane.process import wait_until
from controlplane.random_gangs import PASSING, Crowd, check
from controlplane.relay import Relay
from controlplane.replicas import Replicas, two_replicas
from controlplane.soak import RUNS
from controlplane.webhook import PATIENT, register

COMMIT_DEADLINE = 60
"""As it is shipped [s]."""
GANGS = 8
"""That come while something is harmed."""
NODES = 6
PROMPT = 0.5
"""What an API server sends later than this after a request is of a watch [s]."""
LAG = 2
TIMEOUT = 3
"""Of the API server for a review, as it is shipped [s]."""

pytestmark = [
    pytest.mark.parametrize("run", range(RUNS or 1)),
    pytest.mark.usefixtures("passing"),
]


@pytest.fixture
def passing(policy):
    policy(PASSING)


@pytest.fixture
def crowd(pods, machines, run):
    """Gangs that come and end; at the end of the test all are judged."""
    nodes = tuple(node.name for node in machines(NODES))
    with History(pods.api) as history:
        # The same gangs in every run of this number.
        crowd = Crowd(pods, history, nodes, Random(run))  # noqa: S311
        yield crowd


def come_while(crowd, harm):
    """Let gangs come and end while something is harmed, until it was."""
    with ThreadPoolExecutor(1) as other:
        harmed = other.submit(harm)
        crowd.come_and_end(GANGS)
        while not harmed.done():
            crowd.come_and_end(1)
        harmed.result()


def judge(crowd):
    crowd.run_out()
    check(crowd.history, COMMIT_DEADLINE)
    assert crowd.ended == crowd.shapes.keys()


@contextmanager
def ways_to(*ports):
    """Give a relay to each API server."""
    with ExitStack() as stack:
        yield [stack.enter_context(Relay(lambda port=port: (port,))) for port in ports]


@pytest.fixture
def port(plane):
    return plane.site.ports["kube-apiserver"]


def test_no_gpu_is_given_twice_by_a_leader_that_stops_past_its_lease_while_it_writes(
    plane, port, crowd, tmp_path
):
    with ways_to(port) as ways, two_replicas(plane, ways, tmp_path) as replicas:
        for _ in range(2):
            come_while(crowd, lambda: replicas.stop_while_it_writes(crowd.history))
        judge(crowd)
        wait_until(lambda: len(set(replicas.terms())) >= 3, "a third one leads")


@pytest.fixture
def slow_way(webhook):
    """The way of reviews to the webhook, which the API server waits for as long as is shipped."""
    bundle = base64.b64encode(webhook.ca.cert_pem).decode()
    with Relay(lambda: (webhook.ports[0],)) as way:
        register(webhook.plane, way.port, bundle, seconds=TIMEOUT)
        yield way
        way.lag = 0
        register(webhook.plane, webhook.ports[0], bundle, seconds=PATIENT)


def test_no_gpu_is_given_twice_while_the_webhook_answers_slowly(
    plane, port, slow_way, crowd, tmp_path
):
    def hesitate():
        for lag in (1, 0, TIMEOUT + 0.5, 0, 1, TIMEOUT + 0.5, 0):
            slow_way.lag = lag
            time.sleep(1)

    with ways_to(port) as ways, two_replicas(plane, ways, tmp_path):
        come_while(crowd, hesitate)
        judge(crowd)


def test_no_gpu_is_given_twice_by_leaders_on_two_api_servers_whose_watches_lag(
    plane, port, crowd, tmp_path
):
    with (
        plane.another_api_server() as other,
        ways_to(port, other) as ways,
        two_replicas(plane, ways, tmp_path) as replicas,
    ):
        for way in ways:
            way.lag, way.prompt = LAG, PROMPT
        for harm in (Replicas.kill, Replicas.end):
            come_while(crowd, lambda harm=harm: harm(replicas, 1))
        for way in ways:
            way.lag = 0
        judge(crowd)
        wait_until(lambda: len(set(replicas.terms())) >= 3, "a third one leads")
