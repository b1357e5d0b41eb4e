"""Nodes that change while pods run on them, and cards and containers that differ."""

import json

import pytest
from controlplane.cards import shares, wait_for_reason, where
from controlplane.nodes import NODES
from controlplane.pods import container
from controlplane.process import wait_until

from linkwise.cluster import keys

SHARED = {"name": "share", "machine": "t4x4", "mode": "share", "gpuMemory": 15}
NODE = f"{NODES}/share"
MAP = f"/api/v1/namespaces/{keys.TOPOLOGY_NAMESPACE}/configmaps/topology-share"
UNACCOUNTED = "GPUs in use without a record"


def share(memory):
    return {keys.GPU_MEM: memory}


@pytest.fixture
def offers(plane):
    """Let the node offer other amounts, as a device plugin does that registers again."""

    def offer(**amounts):
        quantities = {name: str(amount) for name, amount in amounts.items()}
        plane.api.patch(
            f"{NODE}/status", {"status": {"allocatable": quantities, "capacity": quantities}}
        )

    return offer


@pytest.fixture
def untold(plane, nodes):
    """A node that reports only the sum of its GPU memory, as gpushare's plugin does."""
    nodes(SHARED)
    plane.api.delete(MAP)


def knows(sidecar, pod, mode):
    """Return whether the scorer sees GPUs of that mode and reports the pod as unaccounted."""
    node = sidecar.node("share")
    return node["gpus"] and node["mode"] == mode and pod in (node["unaccounted"] or "")


@pytest.mark.usefixtures("untold")
def test_a_node_that_grows_gets_the_pods_that_waited_for_it(pods, offers):
    pods.create(share(20), name="large")
    wait_for_reason(pods, "large", "no card with enough free memory")

    offers(**{keys.GPU_MEM: 4 * 24})

    assert where(pods, "large") == ("share", (0,))


@pytest.mark.usefixtures("untold")
def test_a_node_that_shrinks_below_what_is_taken_gives_nothing_until_that_is_gone(
    pods, offers, sidecar
):
    pods.create(share(12), name="before")
    assert where(pods, "before") == ("share", (0,))

    offers(**{keys.GPU_MEM: 4 * 8})
    before = f"{pods.namespace}/before"
    wait_until(lambda: knows(sidecar, before, "share"), "the scorer knows")
    pods.create(share(5), name="after")
    wait_for_reason(pods, "after", UNACCOUNTED)
    pods.api.delete(f"{pods.path}/before", gracePeriodSeconds="0")

    assert where(pods, "after") == ("share", (0,))


def test_a_node_that_turns_from_shares_to_whole_gpus_takes_neither_until_its_shares_are_gone(
    pods, nodes, offers, sidecar
):
    nodes(SHARED)
    pods.create(share(10), name="before")
    assert where(pods, "before") == ("share", (0,))

    pods.api.patch(NODE, {"metadata": {"labels": {keys.NODE_MODE: "topology"}}})
    offers(**{keys.GPU_WHOLE: 4})
    before = f"{pods.namespace}/before"
    wait_until(lambda: knows(sidecar, before, "topology"), "the scorer knows")
    pods.create(share(5), name="share")
    pods.create({keys.GPU_WHOLE: 4}, name="whole")
    wait_for_reason(pods, "share", "requested GPU resource not offered")
    wait_for_reason(pods, "whole", UNACCOUNTED)
    pods.api.delete(f"{pods.path}/before", gracePeriodSeconds="0")

    assert where(pods, "whole") == ("share", (0, 1, 2, 3))
    assert "nodeName" not in pods.all()["share"]["spec"]


def test_cards_of_one_node_that_differ_are_each_taken_for_what_they_have(pods, nodes):
    nodes(SHARED)
    machine = json.loads(pods.api.get(MAP)["data"][keys.TOPOLOGY_MACHINE])
    differing = json.dumps({**machine, "memory": [24, 6, 15, 15]})
    pods.api.patch(MAP, {"data": {keys.TOPOLOGY_MACHINE: differing}})

    found = {}
    for name, memory in {"large": 20, "small": 6, "middle": 15, "last": 4}.items():
        pods.create(share(memory), name=name)
        found[name] = where(pods, name)[1]

    assert found == {"large": (0,), "small": (1,), "middle": (2,), "last": (0,)}
    dev = {name: pod["metadata"]["annotations"][keys.MEM_DEV] for name, pod in pods.all().items()}
    assert dev == {"large": "24", "small": "6", "middle": "15", "last": "24"}


def test_an_unhealthy_card_is_not_allocated_until_it_is_healthy(pods, nodes, sidecar):
    nodes(SHARED)
    maps = f"/api/v1/namespaces/{keys.TOPOLOGY_NAMESPACE}/configmaps"
    configmap = {"metadata": {"name": "unhealthy-gpu-share"}, "data": {keys.UNHEALTHY_KEY: "0, 2"}}

    def unhealthy():
        return [gpu["i"] for gpu in sidecar.node("share")["gpus"] if not gpu["healthy"]]

    pods.api.create(maps, configmap)
    try:
        wait_until(lambda: unhealthy() == [0, 2], "the scorer knows")
        for name, card in {"first": 1, "second": 3}.items():
            pods.create(share(15), name=name)
            assert where(pods, name) == ("share", (card,))
        pods.create(share(15), name="third")
        wait_for_reason(pods, "third", "not enough without the GPUs that are cordoned or unhealthy")
    finally:
        pods.api.delete(f"{maps}/unhealthy-gpu-share")

    # The scheduler does not watch that list: the scorer has to let it try the pod again.
    assert where(pods, "third") == ("share", (0,))


def test_share_of_several_cards_is_published_per_card(pods, nodes):
    nodes({**SHARED, "mode": "core_mem"})
    asked = {keys.GPU_MEM: 16, keys.GPU_CORE: 60}
    pods.create(asked, name="pod", labels={keys.GPU_COUNT: "2"})

    assert where(pods, "pod") == ("share", (0, 1))
    pod = pods.all()["pod"]
    assert shares(pod) == {("share", 0): (8, 30), ("share", 1): (8, 30)}
    annotations = pod["metadata"]["annotations"]
    assert annotations[keys.VISIBLE_DEVICES] == "0,1"
    assert json.loads(annotations[keys.GPUSHARE_ALLOCATION]) == {"0": {"0": 8, "1": 8}}
    assert json.loads(annotations[keys.GPUSHARE_CORE]) == {"0": {"0": 30, "1": 30}}
    assert keys.MEM_IDX not in annotations


def test_init_containers_and_sidecars_count_as_kubernetes_counts_them(pods, nodes):
    nodes(SHARED)
    proxy = {**container(share(2), "proxy"), "restartPolicy": "Always"}
    spec = {
        "initContainers": [container(share(10), "prepare"), proxy],
        "containers": [container(share(4), "a"), container(share(3), "b")],
    }
    pods.create(name="pod", spec=spec)

    assert where(pods, "pod") == ("share", (0,))
    pod = pods.all()["pod"]
    assert shares(pod) == {("share", 0): (10, 0)}
    annotations = pod["metadata"]["annotations"]
    assert annotations[keys.MEM_POD] == "10"
    for name in ("prepare", "proxy", "a", "b"):
        assert annotations[f"{keys.VISIBLE_DEVICES_OF}{name}"] == "0"
    # Of the 15 GiB, 5 are left.
    pods.create(share(6), name="next")
    assert where(pods, "next") == ("share", (1,))
