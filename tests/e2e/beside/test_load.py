"""Many shares at once, and gangs beside single pods: no card is ever given more than it has.

`make soak` creates more shares.
"""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from math import inf
from random import Random

import pytest
from controlplane.cards import overfull
from controlplane.gangs import make_gang
from controlplane.history import History, asked, gpus
from controlplane.process import wait_until
from controlplane.shares import CARDS, MEMORY, bound, create_all, made, share, share_nodes
from controlplane.soak import often

from linkwise.cluster import keys

PATIENCE = 400
SHARES = often(600, 3000)
NODES = often(40, 200)
"""With room for as many shares, and for a few more."""
AIMED = 40
"""Shares that may only be on the first node, which has room for 16."""


@pytest.mark.timeout(1200)
# Pods are named last, so that they go first: node by node would take minutes.
def test_shares_created_at_once_are_all_bound_and_no_card_is_ever_overfull(
    nodes, pods, sidecar, record_testsuite_property
):
    first = nodes(share_nodes(NODES))[0].name
    aimed = {
        f"aimed-{i}": (share(3, 25), {"nodeSelector": {keys.HOSTNAME: first}}) for i in range(AIMED)
    }
    others = {f"pod-{i}": (share(3, 25), {}) for i in range(SHARES - AIMED)}

    def all_that_fit_are_bound():
        where = bound(pods, history)
        # Four fill a card, and sixteen a node: of those who want the first one 24 wait at least.
        return others.keys() <= where.keys() and Counter(where.values())[first] == CARDS * 4

    before = sidecar.scorer.metrics
    with History(pods.api) as history:
        create_all(pods, aimed | others)
        wait_until(all_that_fit_are_bound, "all that fit are bound", PATIENCE)
        history.catch_up()

    after = sidecar.scorer.metrics
    for path in ("/filter", "/prioritize", "/bind"):
        record_testsuite_property(f"p99 of {path} [s], at most", slowest(path, before, after))
    assert history.lost == ""
    assert overfull(history.writes, MEMORY) == []


def slowest(path, before, after, part=0.99):
    """Return a quantile of the response times, estimated from the histogram."""
    name = "linkwise_http_request_duration_seconds_bucket"
    counted = {
        float(key.removeprefix(f'{name}{{le="').partition('"')[0]): after[key] - before.get(key, 0)
        for key in after
        if key.startswith(name) and f'path="{path}"' in key
    }
    return min(limit for limit, count in counted.items() if count >= part * counted[inf])


def test_gangs_by_gates_and_single_pods_by_the_scheduler_never_share_a_gpu(nodes, pods):
    random = Random(5)  # noqa: S311 - the same pods in every run.
    line = {"name": "gpu", "count": 8, "machine": "dgx1-v100", "mode": "topology"}
    nodes({**line, "cpu": 96, "memory": "768Gi"})
    singles = {f"single-{i}": ({keys.GPU_WHOLE: random.choice((1, 2, 4))}, {}) for i in range(16)}
    with History(pods.api) as history, ThreadPoolExecutor(2) as clients:
        apart = clients.submit(create_all, pods, singles)
        for number in range(6):
            each = random.choice((1, 2))
            for i in range(2):
                made(make_gang, pods, f"gang-{number}", 2, each, [i])
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
