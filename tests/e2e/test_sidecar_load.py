"""Many shares at once, beside gangs, while the scorer dies: no card ever has more than it has."""

import signal
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from random import Random

import pytest
from controlplane.api import ApiError
from controlplane.cards import overfull
from controlplane.gangs import make_gang
from controlplane.history import History, asked, gpus
from controlplane.pods import Pods
from controlplane.process import wait_until
from controlplane.sidecar import MANIFESTS, run_sidecar
from controlplane.webhook import run_webhook

from cluster import keys

CARDS, MEMORY = 4, 15
"""Of each node of shared cards, and of each card [GiB]."""
PATIENCE = 400


@pytest.fixture(scope="module")
def webhook(plane):
    with run_webhook(plane, MANIFESTS) as running:
        yield running


@pytest.fixture
def sidecar(webhook, tmp_path):
    with run_sidecar(webhook.plane, tmp_path) as running:
        yield running


@pytest.fixture
def mortal(webhook, tmp_path):
    """Leads again soon after it died."""
    with run_sidecar(webhook.plane, tmp_path, LINKWISE_WRITE_SECONDS="0.5") as running:
        yield running


@pytest.fixture
def pods(webhook, namespace):
    made = Pods(webhook.plane.api, namespace)
    yield made
    made.clear()


def share_nodes(count):
    line = {"name": "share", "machine": "t4x4", "mode": "core_mem", "gpuMemory": MEMORY}
    return {**line, "count": count, "cpu": 96, "memory": "768Gi"}


def create_all(pods, made):
    """Create pods by name, given limits and more of the spec."""

    def create(name, limits, spec):
        def is_made():
            try:
                pods.create(limits, name=name, spec=spec)
            except ApiError as error:
                # Where the webhook is too slow, nothing is created that would pass it by.
                return error.status == 409
            return True

        wait_until(is_made, f"{name} is made")

    with ThreadPoolExecutor(8) as clients:
        calls = [clients.submit(create, name, *given) for name, given in made.items()]
    for call in calls:
        call.result()


def bound(pods, history):
    """Return the nodes of the test's own pods that have one, by the pods' names."""
    mine = f"{pods.namespace}/"
    found = {one.key: one.bound for one in history.present() if one.bound}
    return {key.removeprefix(mine): node for key, node in found.items() if key.startswith(mine)}


def share(memory, core):
    return {keys.GPU_MEM: memory, keys.GPU_CORE: core}


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("sidecar")
# Pods are named last, so that they go first: node by node would take minutes.
def test_3000_shares_created_at_once_are_all_bound_and_no_card_is_ever_overfull(nodes, pods):
    first = nodes(share_nodes(200))[0].name
    aimed = {
        f"aimed-{i}": (share(3, 25), {"nodeSelector": {keys.HOSTNAME: first}}) for i in range(40)
    }
    others = {f"pod-{i}": (share(3, 25), {}) for i in range(2960)}

    def all_that_fit_are_bound():
        where = bound(pods, history)
        # Four fill a card, and sixteen a node: of those who want the first one 24 wait at least.
        return others.keys() <= where.keys() and Counter(where.values())[first] == CARDS * 4

    with History(pods.api) as history:
        create_all(pods, aimed | others)
        wait_until(all_that_fit_are_bound, "all that fit are bound", PATIENCE)
        history.catch_up()

    assert history.lost == ""
    assert overfull(history.writes, MEMORY) == []


@pytest.mark.timeout(900)
def test_usage_returns_to_the_truth_whoever_dies_and_whatever_is_deleted(
    nodes, pods, mortal, revive
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
        for turn in range(50):
            come_and_go(turn)
            time.sleep(random.uniform(0, 0.5))
            revive(mortal)
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


@pytest.mark.usefixtures("sidecar")
def test_gangs_by_gates_and_single_pods_by_the_scheduler_never_share_a_gpu(nodes, pods):
    random = Random(5)  # noqa: S311 - the same pods in every run.
    line = {"name": "gpu", "count": 8, "machine": "dgx1-v100", "mode": "topology"}
    nodes({**line, "cpu": 96, "memory": "768Gi"})
    singles = {f"single-{i}": ({keys.GPU_WHOLE: random.choice((1, 2, 4))}, {}) for i in range(16)}
    with History(pods.api) as history, ThreadPoolExecutor(2) as clients:
        apart = clients.submit(create_all, pods, singles)
        for number in range(6):
            make_gang(pods, f"gang-{number}", 2, random.choice((1, 2)))
        apart.result()
        everybody = len(singles) + 12
        wait_until(lambda: len(bound(pods, history)) == everybody, "all are bound", PATIENCE)
        history.catch_up()

    assert (history.lost, history.held_twice(), history.misplaced()) == ("", [], [])
    for write in history.present():
        if not asked(write.pod):
            continue
        ((node, count),) = {(node, len(gpus(write.pod))) for node, _ in gpus(write.pod)}
        assert (node, count) == (write.bound, asked(write.pod))
