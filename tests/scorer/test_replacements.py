"""A leader keeps the GPUs of a member of a running gang until it is replaced."""

import msgspec
import pytest
import pytest_asyncio
from support.builders import a_container, a_held_pod
from support.servers.leader_harness import JOB, Clock, Cluster, leading, reserved_gpus
from support.waiting import until

from linkwise.cluster import keys
from linkwise.cluster.objects.pod import Pod
from scorer.extender.wire import Binding

WAITING = "WaitingForGPUs"


@pytest_asyncio.fixture
async def cluster():
    async with Cluster() as running:
        running.node()
        yield running


async def place(cluster, *, waiter=True):
    """Fill the node with a gang of two that runs; a single pod waits for its GPUs."""
    cluster.gang()
    await until(lambda: cluster.allocated("bert-0", "bert-1"))
    cluster.bind("bert-0", "bert-1")
    await until(lambda: cluster.phase() == "Placed")
    if waiter:
        cluster.pod("waiter", 4)
        await until(lambda: cluster.events(WAITING))


def gpus(cluster, name):
    return [gpu["i"] for gpu in cluster.record(name)["gpus"]]


def replace_member(cluster, name="bert-1", **pod):
    cluster.pod(name, 4, gang="bert", uid=f"{name}-again", **pod)


async def reserved(cluster):
    """Wait until the Gang shows the GPUs that are reserved."""
    await until(lambda: cluster.the_gang()["status"].get("reserved"))
    return cluster.the_gang()["status"]


async def test_a_replacement_gets_the_gpus_of_the_member_although_a_pod_waits(cluster):
    async with leading(cluster) as leader:
        await place(cluster)
        before = gpus(cluster, "bert-1")
        cluster.delete("bert-1")
        status = await reserved(cluster)
        assert not cluster.record("waiter")
        assert reserved_gpus(leader) == 4
        replace_member(cluster)
        await until(lambda: cluster.allocated("bert-1"))
        assert gpus(cluster, "bert-1") == before
        assert not cluster.record("waiter")
        cluster.bind("bert-1")
        await until(lambda: "reserved" not in cluster.the_gang()["status"])
        assert reserved_gpus(leader) == 0

    assert status["reserved"] == [{"node": "gpu-0", "gpus": before}]
    assert "until 2026-01-01T00:02:00Z" in status["reason"]


async def test_a_failed_member_keeps_its_gpus_for_its_replacement(cluster):
    async with leading(cluster):
        await place(cluster)
        path = "/api/v1/namespaces/team/pods/bert-1"
        cluster.put(path, {**cluster["bert-1"], "status": {"phase": "Failed"}})
        await reserved(cluster)
        assert not cluster.record("waiter")


async def test_a_reservation_ends_with_its_time(cluster):
    clock = Clock()
    cluster.policy("gangs: {replacementSeconds: 5}")
    async with leading(cluster, clock=clock):
        await place(cluster)
        cluster.delete("bert-1")
        await reserved(cluster)
        clock.now += 5
        # Any change starts a round; without one, a timer does.
        cluster.node("gpu-1", 1)
        await until(lambda: cluster.allocated("waiter"))


async def test_places_of_evicted_members_are_kept_although_the_time_of_another_one_is_over(cluster):
    clock = Clock()
    cluster.policy("gangs: {replacementSeconds: 5}")
    async with leading(cluster, clock=clock) as leader:
        await place(cluster, waiter=False)
        cluster.delete("bert-1")
        await reserved(cluster)
        clock.now += 5
        cluster.node("gpu-1", 1)
        await until(lambda: "reserved" not in cluster.the_gang()["status"])
        informers = leader.context.informers
        (gang,) = informers.gangs.values()
        informers.replacements.keep_places(gang.key, {"bert-1"})
        assert reserved_gpus(leader) == 4


async def test_no_time_reserves_nothing(cluster):
    cluster.policy("gangs: {replacementSeconds: 0}")
    async with leading(cluster):
        await place(cluster)
        cluster.delete("bert-1")
        await until(lambda: cluster.allocated("waiter"))


async def test_the_next_leader_keeps_the_reservation_and_its_end(cluster):
    clock = Clock()
    async with leading(cluster, clock=clock):
        await place(cluster)
        cluster.delete("bert-1")
        await reserved(cluster)
    clock.now += 50
    async with leading(cluster, term=8, clock=clock) as leader:
        assert reserved_gpus(leader) == 4
        clock.now += 10
        cluster.node("gpu-1", 1)
        await until(lambda: cluster.allocated("waiter"))


async def test_the_next_leader_does_not_repeat_a_reservation_that_is_over(cluster):
    clock = Clock()
    async with leading(cluster, clock=clock):
        await place(cluster, waiter=False)
        cluster.delete("bert-1")
        await reserved(cluster)
        clock.now += 60
        cluster.node("gpu-1", 1)
        await until(lambda: "reserved" not in cluster.the_gang()["status"])
    async with leading(cluster, term=8, clock=clock) as leader:
        assert reserved_gpus(leader) == 0


async def test_the_next_leader_reserves_gpus_of_a_member_that_was_lost_without_a_leader(cluster):
    async with leading(cluster):
        await place(cluster)
    cluster.delete("bert-1")
    async with leading(cluster, term=8) as leader:
        assert reserved_gpus(leader) == 4
        replace_member(cluster)
        await until(lambda: cluster.allocated("bert-1"))
    assert not cluster.record("waiter")


async def test_a_pod_of_higher_priority_gets_reserved_gpus(cluster):
    async with leading(cluster):
        await place(cluster, waiter=False)
        cluster.delete("bert-1")
        await reserved(cluster)
        cluster.pod("urgent", 4, priority=10)
        await until(lambda: cluster.allocated("urgent"))


@pytest.mark.parametrize("owner", [None, {**JOB, "uid": ""}])
async def test_nothing_is_reserved_for_pods_that_no_controller_creates_again(cluster, owner):
    async with leading(cluster):
        cluster.gang(owner=owner)
        await until(lambda: cluster.allocated("bert-0", "bert-1"))
        cluster.bind("bert-0", "bert-1")
        await until(lambda: cluster.phase() == "Placed")
        cluster.delete("bert-1")
        cluster.pod("single", 4)
        await until(lambda: cluster.allocated("single"))


async def test_nothing_is_reserved_for_a_gang_without_a_running_member(cluster):
    async with leading(cluster):
        await place(cluster)
        cluster.delete("bert-1")
        await reserved(cluster)
        cluster.delete("bert-0")
        await until(lambda: cluster.allocated("waiter"))


async def test_gpus_that_were_reserved_in_vain_are_not_reserved_again_soon(cluster):
    """A tenant deletes members again and again without replacing them."""
    clock = Clock()
    cluster.policy("gangs: {replacementSeconds: 120}")
    async with leading(cluster, clock=clock):
        await place(cluster)
        cluster.delete("bert-1")
        await reserved(cluster)
        clock.now += 120
        cluster.node("gpu-1", 1)
        await until(lambda: cluster.allocated("waiter"))
        cluster.delete("waiter")
        replace_member(cluster)
        await until(lambda: cluster.allocated("bert-1"))
        cluster.bind("bert-1")
        await until(lambda: cluster.phase() == "Placed")
        cluster.pod("waiter", 4, uid="waiter-2")
        cluster.delete("bert-1")
        await until(lambda: cluster.allocated("waiter"))


async def test_members_that_are_lost_again_and_again_keep_their_gpus_if_they_are_replaced(cluster):
    """A member is lost as soon as the one before it is replaced, as under churn."""
    clock = Clock()
    async with leading(cluster, clock=clock):
        await place(cluster)
        for i in range(20):
            cluster.delete("bert-1")
            await reserved(cluster)
            clock.now += 4
            cluster.pod("bert-1", 4, gang="bert", uid=f"bert-1-{i}")
            await until(lambda: cluster.allocated("bert-1"))
            cluster.bind("bert-1")
            await until(lambda: "reserved" not in cluster.the_gang()["status"])
        assert not cluster.record("waiter")


async def test_no_more_is_reserved_than_a_gang_lacks(cluster):
    """Its owner now declares fewer members than the gang had."""
    async with leading(cluster) as leader:
        cluster.gang(workers=4, gpus=2)
        names = [f"bert-{i}" for i in range(4)]
        await until(lambda: cluster.allocated(*names))
        cluster.bind(*names)
        await until(lambda: cluster.phase() == "Placed")
        worker = {"spec": {"containers": [a_container({keys.GPU_WHOLE: 2})]}}
        declared = {"pytorchReplicaSpecs": {"Worker": {"replicas": 3, "template": worker}}}
        job = {"metadata": {"uid": JOB["uid"]}, "spec": declared}
        cluster.put("/apis/kubeflow.org/v1/namespaces/team/pytorchjobs/bert", job)
        cluster.delete("bert-2")
        cluster.delete("bert-3")
        await until(lambda: reserved_gpus(leader) == 2)
        cluster.pod("single", 2)
        await until(lambda: cluster.allocated("single"))
        assert reserved_gpus(leader) == 2


async def test_gpus_that_nvidias_plugin_chooses_are_reserved_by_their_number(cluster):
    cluster.remove("/api/v1/nodes/gpu-0")
    cluster.node(resource=keys.NVIDIA_GPU, **{keys.NODE_MODE: "default"})
    ask = {"containers": [a_container({keys.NVIDIA_GPU: "4"})]}
    async with leading(cluster) as leader:
        cluster.gang(gpus=0, **ask)
        await until(lambda: cluster.allocated("bert-0", "bert-1"))
        cluster.bind("bert-0", "bert-1")
        await until(lambda: cluster.phase() == "Placed")
        cluster.delete("bert-1")
        cluster.pod("waiter", 0, gang="waiter", size=1, **ask)
        await until(lambda: list(leader.context.planner.waiting()))
        assert reserved_gpus(leader) == 4
        cluster.pod("bert-1", 0, gang="bert", uid="again", **ask)
        await until(lambda: cluster.allocated("bert-1"))
    assert not cluster.record("waiter")


async def test_a_scheduler_sees_reserved_gpus_as_taken_unless_its_pod_has_a_higher_priority(
    cluster,
):
    def single(priority):
        return msgspec.convert(a_held_pod(4, "single", gates=(), priority=priority), Pod)

    async with leading(cluster) as leader:
        await place(cluster, waiter=False)
        cluster.delete("bert-1")
        await reserved(cluster)
        ask = leader.context.filter.run
        assert ask(single(0), ["gpu-0"]).names == []
        assert ask(single(1), ["gpu-0"]).names == ["gpu-0"]
        cluster.pod("sched", 4, gates=(), priority=1)
        state = leader.context.informers.state
        await until(lambda: state.pod(("team", "sched")))
        binding = Binding("sched", "team", "sched", "gpu-0")
        assert await leader.context.binder.bind(binding) is None
        replace_member(cluster)
        await until(lambda: list(leader.context.planner.waiting()))
        assert reserved_gpus(leader) == 0
    assert not cluster.record("bert-1")
