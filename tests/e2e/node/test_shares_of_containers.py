"""Shares of cards down to the containers: each sees its card, and the limits of its share."""

import pytest
from controlplane.node.chain import container
from controlplane.pods import gates
from controlplane.process import wait_until
from controlplane.shares import share

from linkwise.cluster import keys
from linkwise.topology import catalogue


@pytest.fixture(scope="module")
def labels():
    return {keys.NODE_MODE: "core_mem"}


@pytest.fixture(scope="module")
def machine():
    return catalogue.entry("t4x4").machine


@pytest.fixture(scope="module", autouse=True)
def offered(running):
    wait_until(lambda: running.allocatable(keys.GPU_CORE) == 400, "the node offers shares")
    wait_until(lambda: running.scorer.look("/v1/nodes")["nodes"], "the scorer knows the node")


def limits_of(seen):
    prefix = "ALIYUN_COM_GPU_MEM_"
    names = ("CONTAINER", "POD", "DEV", "IDX")
    return {name: int(seen.variables[prefix + name]) for name in names}


def test_two_shares_of_one_card_see_it_and_their_limits(chain):
    card = catalogue.entry("t4x4").machine.memory[0]
    chain.create("small", container(share(4, 30)))
    chain.create("large", container(share(10, 70)))

    small, large = chain.has("small"), chain.has("large")

    assert small == large == chain.recorded("small")
    [index] = small
    assert limits_of(chain.seen("small")) == {"CONTAINER": 4, "POD": 4, "DEV": card, "IDX": index}
    assert limits_of(chain.seen("large")) == {"CONTAINER": 10, "POD": 10, "DEV": card, "IDX": index}
    chain.wait_until_books_agree()


def test_containers_of_a_share_pod_see_its_card_and_their_own_limits(chain):
    forged = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    containers = (container(share(3, 20), "one"), container(share(5, 20), "two", env=forged))
    chain.create("pod", *containers, container({}, "none"))

    assert chain.has("pod", "one") == chain.has("pod", "two") == chain.recorded("pod")
    assert len(chain.recorded("pod")) == 1
    assert limits_of(chain.seen("pod", "one"))["CONTAINER"] == 3
    assert limits_of(chain.seen("pod", "two"))["CONTAINER"] == 5
    assert limits_of(chain.seen("pod", "two"))["POD"] == 8
    assert chain.has("pod", "none") == set()
    chain.wait_until_books_agree()


def test_replicas_of_a_time_sliced_node_see_one_gpu_each(chain):
    pods = chain.pods
    chain.switch("timeslice", **{keys.GFD_REPLICAS: "2"})
    wait_until(lambda: chain.allocatable(keys.NVIDIA_GPU_SHARED) == 8, "the node offers replicas")
    asks = {keys.NVIDIA_GPU_SHARED: 1}
    wait_until(lambda: gates(pods.create(asks, dryRun="All")), "the webhook knows that")

    names = [f"replica-{index}" for index in range(8)]
    for name in names:
        chain.create(name, container(asks))

    seen = [chain.has(name) for name in names]
    assert sorted(min(held) for held in seen) == [0, 0, 1, 1, 2, 2, 3, 3]
    assert all(len(held) == 1 for held in seen)
    chain.wait_until_books_agree()
