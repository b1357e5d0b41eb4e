"""Pods that are deleted with grace period 0: their GPUs wait for the end of their processes."""

import pytest
from controlplane.node.chain import container
from controlplane.node.cleaner import frozen, processes
from controlplane.process import wait_until

from linkwise.cluster import keys


def gpus(count):
    return {keys.GPU_WHOLE: count}


@pytest.fixture(scope="module", autouse=True)
def offered(running):
    wait_until(lambda: running.allocatable(keys.GPU_WHOLE) == 8, "the node offers its GPUs")
    wait_until(lambda: running.scorer.look("/v1/nodes")["nodes"], "the scorer knows the node")


def delete_at_once(chain, pod):
    chain.pods.api.delete(f"{chain.pods.path}/{pod}", gracePeriodSeconds="0")


@pytest.mark.parametrize("grace", [0, 30], ids=["ordinary deletion", "forced deletion"])
def test_a_gpu_is_never_in_two_containers_after_a_deletion_with_grace_period_0(chain, grace):
    spec = {"terminationGracePeriodSeconds": grace}
    chain.create("first", container(gpus(8), then="trap '' TERM; sleep 3600 & wait"), spec=spec)
    assert len(chain.has("first")) == 8
    cgroup = chain.cgroup_of("first")
    assert processes(cgroup)

    if grace:
        delete_at_once(chain, "first")
    else:
        chain.pods.api.delete(f"{chain.pods.path}/first")
    chain.create("second", container(gpus(8)))

    assert len(chain.has("second")) == 8
    assert processes(cgroup) == set()
    assert chain.events("GPUsNotBound", "second") == []
    chain.wait_until_books_agree()


def test_gpu_with_a_process_that_cannot_be_killed_is_not_given_again(chain):
    chain.create("hung", container(gpus(2)))
    held = chain.has("hung")
    cgroup = chain.cgroup_of("hung")
    with frozen(cgroup):
        delete_at_once(chain, "hung")
        chain.create("next", container(gpus(8)))

        wait_until(lambda: chain.events("GPUsNotBound", "next"), "an Event has the reason", 120)
        assert "has not ended" in chain.events("GPUsNotBound", "next")[0]
        chain.delete("next")
        wait_until(lambda: chain.allocatable(keys.GPU_WHOLE) == 6, "the node offers the others")
        wait_until(lambda: chain.events("GPUUnhealthy", chain.node.name), "an Event of the node")
        # After a restart of the agent, too.
        chain.agent.kill()
        chain.agent.start()
        wait_until(lambda: chain.allocatable(keys.GPU_WHOLE) == 6, "the node offers the others")
        chain.create("others", container(gpus(6)))
        assert chain.has("others") == set(range(8)) - held
        assert processes(cgroup)

    wait_until(lambda: chain.allocatable(keys.GPU_WHOLE) == 8, "the node offers all GPUs")
    chain.create("last", container(gpus(2)))
    assert chain.has("last") == held
    assert processes(cgroup) == set()
    chain.wait_until_books_agree()
