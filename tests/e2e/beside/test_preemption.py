"""Preemption by a scheduler beside the scorer, and pods that no preemption helps."""

import pytest
from controlplane.cards import wait_for_reason, where
from controlplane.gangs import make_gang
from controlplane.process import wait_until

from linkwise.cluster import keys

SHARED = {"name": "share", "machine": "t4x4", "mode": "share", "gpuMemory": 15}
WHOLE = {"name": "whole", "machine": "dgx1-v100", "mode": "topology"}


def create(pods, name, memory, spec=None):
    """Create a pod, and return the card that it gets."""
    pods.create({keys.GPU_MEM: memory}, name=name, spec=spec)
    node, (card,) = where(pods, name)
    assert node == "share"
    return card


def nominated(pods):
    return [
        name
        for name, pod in pods.all().items()
        if "nominatedNodeName" in pod.get("status", {}) and "nodeName" not in pod["spec"]
    ]


def test_a_node_stays_open_to_others_after_pods_were_evicted_there(pods, nodes, urgent):
    # Then the youngest pods, which a scheduler evicts first, are on different cards.
    nodes({**SHARED, "labels": {keys.NODE_PLACEMENT: "spread"}})
    card_of = {f"low-{i}": create(pods, f"low-{i}", 5) for i in range(12)}

    taken = create(pods, "high", 10, urgent)

    wait_until(lambda: len(pods.all()) == 11, "two pods were evicted")
    gone = card_of.keys() - pods.all().keys()
    assert {card_of[name] for name in gone} == {taken}
    assert nominated(pods) == []
    # Anybody may have what becomes free there, and that at once.
    for name in ("low-0", "low-11"):
        if name in gone:
            continue
        pods.api.delete(f"{pods.path}/{name}", gracePeriodSeconds="0")
        assert create(pods, f"after-{name}", 5) == card_of[name]


def test_a_pod_that_no_eviction_helps_preempts_no_pod_and_reserves_no_node(pods, nodes, urgent):
    nodes(SHARED)
    for i in range(4):
        # 8 GiB that stay and 7 that might go, on each card: in sum more than enough.
        assert create(pods, f"stays-{i}", 8, urgent) == i
    for i in range(4):
        assert create(pods, f"low-{i}", 7) == i

    pods.create({keys.GPU_MEM: 10}, name="hopeless", spec=urgent)

    # The scheduler, which counts sums, would have evicted two.
    wait_for_reason(pods, "hopeless", "no candidate node for preemption")
    assert len(pods.all()) == 9
    assert nominated(pods) == []
    pods.api.delete(f"{pods.path}/low-2", gracePeriodSeconds="0")
    assert create(pods, "next", 7) == 2
    assert len(pods.all()) == 9


@pytest.mark.parametrize("count", [2, 1], ids=["on two nodes", "on one node"])
def test_a_single_pod_evicts_a_gang_as_a_whole_or_not_at_all(pods, nodes, urgent, count):
    nodes(WHOLE | {"count": count})
    gang = make_gang(pods, "gang", 4, 2 * count)
    wait_until(lambda: pods.bound() >= set(gang), "the gang is bound", 120)

    pods.create({keys.GPU_WHOLE: 2}, name="single", spec=urgent)

    if count > 1:
        # The scheduler, which knows no gangs, would have evicted one or two of the members.
        wait_for_reason(pods, "single", "no candidate node for preemption")
        assert pods.all().keys() == {*gang, "single"}
        assert nominated(pods) == []
    else:
        wait_until(lambda: "single" in pods.bound(), "the single pod is bound", 120)
        assert pods.all().keys() == {"single"}


def test_gpus_that_become_free_for_a_pod_are_not_given_to_a_gang_that_waits(pods, nodes, urgent):
    nodes(WHOLE)
    low = {f"low-{i}" for i in range(8)}
    for name in low:
        pods.create({keys.GPU_WHOLE: 1}, name=name)
    wait_until(lambda: pods.bound() >= low, "the pods are bound", 120)
    gang = set(make_gang(pods, "gang", 2, 1))

    pods.create({keys.GPU_WHOLE: 6}, name="single", spec=urgent)

    wait_until(lambda: "single" in pods.bound(), "the single pod is bound", 120)
    # A second set of pods would have been evicted for what the gang had got.
    assert len(pods.all().keys() & low) == 2
    assert not gang & pods.bound()
