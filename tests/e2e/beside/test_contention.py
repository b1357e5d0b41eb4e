"""Gangs by gates and single pods by the scheduler that want more GPUs than there are."""

from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest
from controlplane.gangs import make_gang
from controlplane.history import History, asked, gpus
from controlplane.process import wait_until
from controlplane.shares import bound, create_all, made

from linkwise.cluster import keys

PATIENCE = 400
NODES, SINGLES, GANGS = 2, 40, 10


@pytest.mark.timeout(1200)
def test_all_of_them_get_their_turn_and_never_share_a_gpu(nodes, pods):
    random = Random(7)  # noqa: S311 - the same pods in every run.
    line = {"name": "gpu", "count": NODES, "machine": "dgx1-v100", "mode": "topology"}
    nodes({**line, "cpu": 96, "memory": "768Gi"})
    singles = {
        f"single-{i}": ({keys.GPU_WHOLE: random.choice((1, 2, 4))}, {}) for i in range(SINGLES)
    }
    waiting = [{name} for name in singles]
    waiting += [{f"gang-{number}-{i}" for i in range(2)} for number in range(GANGS)]

    def ended():
        # End what is bound as a whole, so that others can have its GPUs.
        there = bound(pods, history).keys()
        for unit in [unit for unit in waiting if unit <= there]:
            for name in unit & pods.all().keys():
                pods.api.delete(f"{pods.path}/{name}", gracePeriodSeconds="0")
            waiting.remove(unit)
        return not waiting

    with History(pods.api) as history, ThreadPoolExecutor(1) as clients:
        apart = clients.submit(create_all, pods, singles)
        for number in range(GANGS):
            each = random.choice((2, 4, 8))
            for i in range(2):
                made(make_gang, pods, f"gang-{number}", 2, each, [i])
        wait_until(ended, "all had their turn", PATIENCE)
        apart.result()
        history.catch_up()

    assert (history.lost, history.held_twice(), history.misplaced()) == ("", [], [])
    for write in history.writes:
        if write.bound and asked(write.pod):
            assert has(write.pod) == (write.bound, asked(write.pod))


def has(pod):
    ((node, count),) = {(node, len(gpus(pod))) for node, _ in gpus(pod)}
    return node, count
