"""Baselines choose the best of all places by the formulas of their docstrings."""

from dataclasses import dataclass
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.traces import a_node, a_policy, occupied, placed, whole_fleet

from linkwise.replay.fleet import empty_fleet
from linkwise.topology.catalogue import entry

NODES = {"a": (2, 4000), "b": (3, 8000), "c": (1, 2000)}
"""GPUs and CPU [millicores] of each node; b is the largest one."""


@dataclass
class State:
    """What runs on a node before the pod."""

    cpu: int
    pods: list[list[int]]
    """By GPU, the parts of its pods [1/1000]."""

    @property
    def left(self):
        return [1000 - sum(own) for own in self.pods]


def left_after(node, pod):
    """Return the mean of the parts of CPU and GPU that stay free, of the largest node."""
    gpus = (sum(node.left) - pod["gpus"] * pod["milli"]) / 3000
    return ((node.cpu - pod["cpu"]) / 8000 + gpus) / 2


def dot_product(node, pod):
    gpus = sum(node.left) / 3000 * pod["gpus"] * pod["milli"] / 3000
    return node.cpu / 8000 * pod["cpu"] / 8000 + gpus


def packing(node, pod):
    if all(left == 1000 for left in node.left):
        return 33 - len(node.left)
    used = sorted(left for left in node.left if left >= pod["milli"])[: pod["gpus"]]
    fresh = used.count(1000)
    return max(50 - fresh, 33) if fresh else max(100 - sum(used) / 10 / 10, 50)


def clustering(node, pod):
    # All pods that run have one GPU or a part of one.
    kinds = {"share" if part < 1000 else 1 for own in node.pods for part in own}
    own = "share" if pod["milli"] < 1000 else pod["gpus"]
    base = 75 if kinds == {own} else 50 if own in kinds else 0 if kinds else 25
    return base + 25 * (1 - sum(node.left) / 3000)


def hami(node, _pod):
    gpus = len(node.left)
    slots = sum(map(len, node.pods)) / (10 * gpus)
    return 10 * (slots + 2 * (1 - sum(node.left) / (1000 * gpus)))


def hami_card(node, i):
    return 10 * (len(node.pods[i]) / 10 + 2 * (1 - node.left[i] / 1000))


def least_left(node, i):
    return -node.left[i]


SCORES = {
    "best-fit": (lambda *a: -left_after(*a), least_left),
    "worst-fit": (left_after, lambda *a: -least_left(*a)),
    "dot-product": (lambda *a: -dot_product(*a), least_left),
    "gpu-packing": (packing, least_left),
    "gpu-clustering": (clustering, least_left),
    "hami-binpack": (hami, hami_card),
    "hami-spread": (lambda *a: -hami(*a), lambda *a: -hami_card(*a)),
}
"""The score of a node and that of a GPU, the highest best."""

ON_GPU = st.sampled_from([[], [300], [500], [200, 300], [700], [1000]])
PODS = st.one_of(
    st.builds(dict, gpus=st.just(1), milli=st.sampled_from([200, 400, 700])),
    st.builds(dict, gpus=st.integers(1, 3), milli=st.just(1000)),
)


@pytest.mark.parametrize("name", SCORES)
@settings(max_examples=60, deadline=None)
@given(used=st.lists(ON_GPU, min_size=6, max_size=6), pod=PODS, cpu=st.integers(1, 5000))
def test_no_place_has_a_higher_score(name, used, pod, cpu):
    pod = pod | {"cpu": cpu}
    rest = iter(used)
    states = {
        node: State(cpu, [next(rest) for _ in range(gpus)]) for node, (gpus, cpu) in NODES.items()
    }
    taken = [
        (node, i, part)
        for node, state in states.items()
        for i, parts in enumerate(state.pods)
        for part in parts
    ]
    fleet = empty_fleet([a_node(node, *size) for node, size in NODES.items()], shared=True)
    found = placed(a_policy(name), occupied(fleet, *taken), **pod)

    of_node, of_card = SCORES[name]
    places = {
        (node, cards): (of_node(state, pod), sum(of_card(state, i) for i in cards))
        for node, state in states.items()
        for cards in combinations(range(len(state.pods)), pod["gpus"])
        if state.cpu >= cpu and all(state.left[i] >= pod["milli"] for i in cards)
    }
    if found is None:
        assert not places
        return
    ((node, cards),) = found
    score, card_score = places[node, tuple(cards)]
    assert score == pytest.approx(max(score for score, _ in places.values()))
    assert card_score == pytest.approx(max(own for (n, _), (_, own) in places.items() if n == node))


FREE = st.sets(st.integers(0, 7), min_size=1)


@settings(max_examples=60, deadline=None)
@given(free=FREE, gpus=st.integers(1, 4))
def test_no_set_of_whole_gpus_has_higher_pair_scores_for_hami(free, gpus):
    machine = entry("dgx1-v100").machine
    taken = [("node-0", gpu, None) for gpu in range(8) if gpu not in free]
    found = placed(
        a_policy("hami-binpack"), occupied(whole_fleet(1), *taken), shared=False, gpus=gpus
    )

    def total(pairs):
        return sum(100 * machine.links[a][b] + machine.levels[a][b] for a, b in pairs)

    if len(free) < gpus:
        assert found is None
    elif gpus == 1:
        sums = {i: total((i, other) for other in free if other != i) for i in free}
        assert sums[found[0][1][0]] == min(sums.values())
    else:
        sums = {each: total(combinations(each, 2)) for each in combinations(sorted(free), gpus)}
        assert sums[tuple(found[0][1])] == max(sums.values())


def fewest_nodes(capacity, pods):
    """Return how many nodes pods need at least."""
    return next(
        count
        for count in range(1, len(capacity) + 1)
        if any(sum(chosen) >= pods for chosen in combinations(capacity, count))
    )


@pytest.mark.parametrize("name", ["native-gangs", "kueue-tas"])
@settings(max_examples=60, deadline=None)
@given(
    used=st.lists(st.integers(0, 4), min_size=5, max_size=5),
    gpus=st.integers(1, 2),
    pods=st.integers(2, 9),
)
def test_no_smaller_domain_fits_a_gang(name, used, gpus, pods):
    zones = "aabbb"
    taken = [(f"node-{i}", gpu, None) for i, count in enumerate(used) for gpu in range(count)]
    fleet = occupied(whole_fleet(5, "t4x4", zones=zones), *taken)
    found = placed(a_policy(name), fleet, shared=False, gpus=gpus, pods=pods)

    capacity = [(4 - count) // gpus for count in used]
    domains = [[i for i in range(5) if zones[i] == zone] for zone in "ab"]
    if name == "kueue-tas":
        # A node that fits all pods is the lowest domain; the whole fleet is the highest one.
        domains = next(
            level
            for level in ([[i] for i in range(5)], domains, [list(range(5))])
            if level == [list(range(5))] or any(sum(capacity[i] for i in d) >= pods for d in level)
        )
    fitting = [domain for domain in domains if sum(capacity[i] for i in domain) >= pods]
    if found is None:
        assert not fitting
        return
    nodes = {int(node.removeprefix("node-")) for node, _ in found}
    (chosen,) = [domain for domain in fitting if nodes <= set(domain)]
    assert sum(capacity[i] for i in chosen) == min(sum(capacity[i] for i in d) for d in fitting)
    if name == "kueue-tas":
        assert len(nodes) == fewest_nodes([capacity[i] for i in chosen], pods)
