"""Pods that are deleted with grace period 0: their GPUs wait for the end of their processes."""

from contextlib import contextmanager

import pytest
from controlplane.node.chain import container
from controlplane.node.cleaner import hierarchies, processes
from controlplane.process import wait_until

from cluster import keys


def gpus(count):
    return {keys.GPU_WHOLE: count}


@pytest.fixture(scope="module", autouse=True)
def offered(running):
    wait_until(lambda: running.allocatable(keys.GPU_WHOLE) == 8, "the node offers its GPUs")
    wait_until(lambda: running.scorer.look("/v1/nodes")["nodes"], "the scorer knows the node")


def cgroup_of(chain, pod):
    """Return the path of the cgroup of a pod below the root of each hierarchy."""
    uid = chain.pods.all()[pod]["metadata"]["uid"]
    for root in hierarchies():
        for path in (root / chain.node.place.name).rglob(f"pod{uid}"):
            return path.relative_to(root)
    raise AssertionError(f"{pod} has no cgroup")


def delete_at_once(chain, pod):
    chain.pods.api.delete(f"{chain.pods.path}/{pod}", gracePeriodSeconds="0")


@contextmanager
def frozen(cgroup):
    """Keep the processes of a cgroup from running, and from being killed.

    Frozen is the cgroup of the pod: the runtime thaws that of a container before it kills it.
    """
    path, freeze, thaw = next(
        (root / cgroup / name, freeze, thaw)
        for root in hierarchies()
        for name, freeze, thaw in (
            ("freezer.state", "FROZEN", "THAWED"),
            ("cgroup.freeze", "1", "0"),
        )
        if (root / cgroup / name).exists()
    )
    path.write_text(freeze)
    try:
        yield
    finally:
        path.write_text(thaw)


@pytest.mark.parametrize("grace", [0, 30], ids=["ordinary deletion", "forced deletion"])
def test_a_gpu_is_never_in_two_containers_after_a_deletion_with_grace_period_0(chain, grace):
    spec = {"terminationGracePeriodSeconds": grace}
    chain.create("first", container(gpus(8), then="trap '' TERM; sleep 3600 & wait"), spec=spec)
    assert len(chain.has("first")) == 8
    cgroup = cgroup_of(chain, "first")
    assert processes(str(cgroup))

    if grace:
        delete_at_once(chain, "first")
    else:
        chain.pods.api.delete(f"{chain.pods.path}/first")
    chain.create("second", container(gpus(8)))

    assert len(chain.has("second")) == 8
    assert processes(str(cgroup)) == set()
    assert chain.events("GPUsNotBound", "second") == []
    chain.wait_until_books_agree()


def test_gpu_with_a_process_that_cannot_be_killed_is_not_given_again(chain):
    chain.create("hung", container(gpus(2)))
    held = chain.has("hung")
    cgroup = cgroup_of(chain, "hung")
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
        assert processes(str(cgroup))

    wait_until(lambda: chain.allocatable(keys.GPU_WHOLE) == 8, "the node offers all GPUs")
    chain.create("last", container(gpus(2)))
    assert chain.has("last") == held
    assert processes(str(cgroup)) == set()
    chain.wait_until_books_agree()
