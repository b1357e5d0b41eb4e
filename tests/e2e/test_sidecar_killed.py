"""The scorer beside a scheduler, killed again and again while shares come and go.

`make soak` does it more often.
"""

import signal
import time
from contextlib import suppress
from random import Random

import pytest
from controlplane.api import ApiError
from controlplane.cards import overfull
from controlplane.history import History
from controlplane.manifests import WITH_SCHEDULER
from controlplane.pods import Pods
from controlplane.process import wait_until
from controlplane.shares import CARDS, MEMORY, bound, create_all, share, share_nodes
from controlplane.sidecar import run_sidecar
from controlplane.soak import often
from controlplane.webhook import run_webhook

PATIENCE = 400


@pytest.fixture(scope="module")
def webhook(plane):
    with run_webhook(plane, WITH_SCHEDULER) as running:
        yield running


@pytest.fixture
def sidecar(webhook, tmp_path):
    # So that it leads again soon after it died.
    with run_sidecar(webhook.plane, tmp_path, LINKWISE_WRITE_SECONDS="0.5") as running:
        yield running


@pytest.fixture
def pods(webhook, namespace):
    made = Pods(webhook.plane.api, namespace)
    yield made
    made.clear()


@pytest.mark.timeout(2400)
def test_usage_is_correct_after_kills_of_the_scorer_and_deletions_of_pods(
    nodes, pods, sidecar, revive
):
    random = Random(11)  # noqa: S311 - the same pods in every run.
    nodes(share_nodes(5))
    names = []

    def come_and_go(turn):
        made = {
            f"pod-{turn}-{i}": (share(random.randint(2, 15), 5 * random.randint(1, 20)), {})
            for i in range(8)
        }
        names.extend(made)
        create_all(pods, made)
        # Some of those just made, which may be between filter and bind.
        for name in random.sample(names, len(names) // 2):
            names.remove(name)
            with suppress(ApiError):
                pods.api.delete(f"{pods.path}/{name}", gracePeriodSeconds="0")

    with History(pods.api) as history:
        for turn in range(often(4, 50)):
            come_and_go(turn)
            time.sleep(random.uniform(0, 0.5))
            revive(sidecar)
        for name in pods.all():
            pods.api.delete(f"{pods.path}/{name}", gracePeriodSeconds="0")
        # Nothing is left of all that: each card can be given as a whole.
        create_all(pods, {f"whole-{i}": (share(MEMORY, 100), {}) for i in range(5 * CARDS)})
        wait_until(lambda: len(bound(pods, history)) == 5 * CARDS, "every card is given", PATIENCE)
        history.catch_up()

    assert history.lost == ""
    assert overfull(history.writes, MEMORY) == []


@pytest.fixture
def revive(plane):
    """Kills the scorer, and starts it again as a kubelet would."""

    def again(sidecar):
        process = sidecar.scorer.process
        process.signal(signal.SIGKILL)
        plane.processes.stop(process)
        plane.processes.start(process)
        process.wait_ready(lambda: sidecar.scorer.leads)

    return again
