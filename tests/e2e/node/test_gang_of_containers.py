"""Gangs and single pods down to their containers: each sees exactly the GPUs of its record."""

import pytest
from controlplane.gangs import gang_labels
from controlplane.node.chain import container
from controlplane.process import wait_until

from cluster import keys

BEST_FOURS = ({0, 1, 2, 3}, {4, 5, 6, 7})
WHOLE = {keys.GPU_WHOLE: 1}


@pytest.fixture(scope="module", autouse=True)
def offered(running):
    wait_until(lambda: running.allocatable(keys.GPU_WHOLE) == 8, "the node offers its GPUs")
    wait_until(lambda: running.scorer.look("/v1/nodes")["nodes"], "the scorer knows the node")


def test_workers_of_a_gang_see_one_best_set_and_the_launcher_sees_nothing(chain):
    labels = gang_labels("train", 4)
    for index in range(4):
        chain.create(f"worker-{index}", container(WHOLE), labels=labels)
    forged = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    chain.create("launcher", container(env=forged), labels=labels)

    seen = {name: chain.has(name) for name in chain.pods.all() if name != "launcher"}

    assert [len(held) for held in seen.values()] == [1, 1, 1, 1]
    assert set().union(*seen.values()) in BEST_FOURS
    assert chain.has("launcher") == set()
    assert chain.wait_until_books_agree() == seen


def test_a_pod_that_forges_its_variables_sees_only_its_own_gpu(chain):
    forged = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    chain.create("honest", container(WHOLE))
    chain.create("forger", container(WHOLE, env=forged))

    assert chain.has("honest") == chain.recorded("honest")
    assert chain.has("forger") == chain.recorded("forger")
    assert chain.recorded("honest").isdisjoint(chain.recorded("forger"))
    assert chain.seen("forger").variables["NVIDIA_VISIBLE_DEVICES"] == "void"
    chain.wait_until_books_agree()
