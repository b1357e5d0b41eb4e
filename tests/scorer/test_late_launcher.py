"""The GPUs of a launcher that is made once all workers are ready are kept for it."""

import pytest
import pytest_asyncio
from support.builders import a_container
from support.servers.leader_harness import Clock, Cluster, leading, reserved_gpus
from support.waiting import until

from linkwise.cluster import keys
from linkwise.workloads import operator_keys

MPI_JOB = {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "name": "bert", "uid": "mpi"}
LAUNCHER_JOB = {"apiVersion": "batch/v1", "kind": "Job", "name": "bert-launcher", "uid": "launch"}
WORKERS = ("bert-worker-0", "bert-worker-1", "bert-worker-2")
LAUNCHER = "bert-launcher-x7k2p"
PATH = "/apis/kubeflow.org/v2beta1/namespaces/team/mpijobs/bert"


@pytest_asyncio.fixture
async def cluster():
    async with Cluster() as running:
        running.node()
        yield running


def submit(cluster, *, launcher=2, workers=3, status=None):
    """Create the MPIJob; its operator has made the workers."""
    roles = {
        role: {
            "replicas": count,
            "template": {"spec": {"containers": [a_container({keys.GPU_WHOLE: gpus})]}},
        }
        for role, count, gpus in (("Launcher", 1, launcher), ("Worker", workers, 2))
    }
    policy = {"launcherCreationPolicy": "WaitForWorkersReady", "runLauncherAsWorker": True}
    job = {"metadata": {"uid": "mpi"}, "spec": {**policy, "mpiReplicaSpecs": roles}}
    cluster.put(PATH, {**job, "status": status or {}})


def make_workers(cluster, *names, size=None):
    for name in names or WORKERS:
        cluster.pod(name, 2, gang="bert", size=size, owner=MPI_JOB)


def make_launcher(cluster, gpus=2, **pod):
    """Create the launcher as the operator does when all workers are ready: by a batch Job."""
    metadata = {"uid": "launch", "ownerReferences": [{**MPI_JOB, "controller": True}]}
    cluster.put("/apis/batch/v1/namespaces/team/jobs/bert-launcher", {"metadata": metadata})
    labels = {operator_keys.JOB_ROLE: "launcher"}
    cluster.pod(LAUNCHER, gpus, gang="bert", size=None, owner=LAUNCHER_JOB, labels=labels, **pod)


async def place_workers(cluster):
    submit(cluster)
    make_workers(cluster)
    await until(lambda: cluster.allocated(*WORKERS))
    cluster.bind(*WORKERS)
    await until(lambda: members(cluster) == "3/4")


def members(cluster):
    gang = cluster.the_gang()
    return gang and gang.get("status", {}).get("members")


def gpus(cluster, name):
    return [gpu["i"] for gpu in cluster.record(name)["gpus"]]


def planned(cluster):
    """Return the GPUs of the plan's members by name."""
    return {each["pod"]: each["gpus"] for each in cluster.the_gang()["spec"]["plan"]["members"]}


async def test_the_launcher_gets_the_gpus_that_were_planned_with_the_workers(cluster):
    async with leading(cluster) as leader:
        await place_workers(cluster)
        kept = planned(cluster)["bert-launcher"]
        status = cluster.the_gang()["status"]
        assert reserved_gpus(leader) == 2
        cluster.pod("waiter", 2)
        await until(lambda: cluster.events("WaitingForGPUs"))
        make_launcher(cluster)
        await until(lambda: cluster.allocated(LAUNCHER))
        cluster.bind(LAUNCHER)
        await until(lambda: members(cluster) == "4/4" and cluster.phase() == "Placed")
        await until(lambda: reserved_gpus(leader) == 0)
        await until(lambda: len(cluster.events("GangPlaced")) == 2)

    assert status["phase"] == "Assembling"
    assert status["reserved"] == [{"node": "gpu-0", "gpus": kept}]
    assert "reserved for its launcher, which is made when all workers are ready" in status["reason"]
    assert gpus(cluster, LAUNCHER) == kept
    assert planned(cluster).keys() == {*WORKERS, LAUNCHER}
    assert not cluster.record("waiter")
    texts = [event["message"] for event in cluster.events("GangPlaced")]
    assert texts[0].startswith("3 of 4 members of gang bert are on gpu-0")
    assert texts[1].startswith("All 4 members of gang bert are on gpu-0")


async def test_the_workers_wait_until_the_launcher_fits_too(cluster):
    async with leading(cluster):
        cluster.pod("other", 1)
        await until(lambda: cluster.allocated("other"))
        submit(cluster)
        make_workers(cluster)
        await until(lambda: cluster.phase() == "Waiting")
        assert members(cluster) == "3/4"
        cluster.delete("other")
        await until(lambda: cluster.allocated(*WORKERS))


async def test_the_next_unit_of_the_same_cycle_does_not_get_the_place(cluster):
    """The watch does not show the plan yet."""
    async with leading(cluster) as leader:
        cluster.pod("other", 8)
        await until(lambda: cluster.allocated("other"))
        submit(cluster)
        make_workers(cluster)
        cluster.pod("waiter", 2, created="2026-01-02T00:00:00Z")
        await until(lambda: cluster.phase() == "Waiting")
        await until(lambda: len([*leader.context.planner.waiting()]) == 2)
        cluster.delete("other")
        await until(lambda: cluster.allocated(*WORKERS))
        cluster.bind(*WORKERS)
        await until(lambda: members(cluster) == "3/4")
        assert reserved_gpus(leader) == 2
    assert not cluster.record("waiter")


async def test_the_reservation_has_no_end_in_time(cluster):
    clock = Clock()
    async with leading(cluster, clock=clock) as leader:
        await place_workers(cluster)
        clock.now += 3600
        cluster.pod("waiter", 2)
        await until(lambda: cluster.events("WaitingForGPUs"))
        assert reserved_gpus(leader) == 2


async def test_the_next_leader_keeps_the_place(cluster):
    async with leading(cluster):
        await place_workers(cluster)
        kept = planned(cluster)["bert-launcher"]
    cluster.pod("waiter", 2)
    async with leading(cluster, term=8) as leader:
        assert reserved_gpus(leader) == 2
        await until(lambda: cluster.events("WaitingForGPUs"))
        make_launcher(cluster)
        await until(lambda: cluster.allocated(LAUNCHER))
    assert gpus(cluster, LAUNCHER) == kept
    assert not cluster.record("waiter")


async def test_a_leader_that_finds_half_of_the_workers_written_keeps_the_place(cluster):
    async with leading(cluster):
        cluster.fail("PATCH", WORKERS[2], *[(500, "no")] * 100)
        submit(cluster)
        make_workers(cluster)
        await until(lambda: cluster.allocated(*WORKERS[:2]))
        kept = planned(cluster)["bert-launcher"]
    cluster.outcomes.clear()
    cluster.pod("waiter", 2, created="2025-01-01T00:00:00Z")
    async with leading(cluster, term=8):
        await until(lambda: cluster.allocated(WORKERS[2]))
        make_launcher(cluster)
        await until(lambda: cluster.allocated(LAUNCHER))
    assert gpus(cluster, LAUNCHER) == kept
    assert not cluster.record("waiter")


@pytest.mark.parametrize(
    "status", [{"conditions": [{"type": "Failed", "status": "True"}]}], ids=["failed"]
)
async def test_the_reservation_ends_with_the_owner(cluster, status):
    async with leading(cluster):
        await place_workers(cluster)
        cluster.pod("waiter", 2)
        await until(lambda: cluster.events("WaitingForGPUs"))
        submit(cluster, status=status)
        await until(lambda: cluster.allocated("waiter"))


async def test_the_reservation_ends_with_the_workers(cluster):
    async with leading(cluster):
        await place_workers(cluster)
        cluster.pod("waiter", 8)
        await until(lambda: cluster.events("WaitingForGPUs"))
        for name in WORKERS:
            cluster.delete(name)
        await until(lambda: cluster.allocated("waiter"))


async def test_the_place_stays_when_the_gang_has_fewer_workers(cluster):
    async with leading(cluster) as leader:
        await place_workers(cluster)
        kept = planned(cluster)["bert-launcher"]
        submit(cluster, workers=2)
        cluster.delete(WORKERS[2])
        await until(lambda: members(cluster) == "2/3" and reserved_gpus(leader) == 2)
        make_launcher(cluster)
        await until(lambda: cluster.allocated(LAUNCHER))
        assert gpus(cluster, LAUNCHER) == kept


async def test_a_replaced_worker_leaves_the_place_of_the_launcher(cluster):
    async with leading(cluster) as leader:
        await place_workers(cluster)
        cluster.delete(WORKERS[0])
        await until(lambda: reserved_gpus(leader) == 4)
        cluster.pod(WORKERS[0], 2, gang="bert", size=None, owner=MPI_JOB, uid="again")
        await until(lambda: cluster.allocated(WORKERS[0]))
        cluster.bind(WORKERS[0])
        await until(lambda: members(cluster) == "3/4" and reserved_gpus(leader) == 2)
        kept = planned(cluster)["bert-launcher"]
        make_launcher(cluster)
        await until(lambda: cluster.allocated(LAUNCHER))
        assert gpus(cluster, LAUNCHER) == kept


async def test_launcher_that_does_not_fit_its_place_is_planned_again(cluster):
    async with leading(cluster):
        await place_workers(cluster)
        cluster.node("gpu-1", 8, zone="b")
        make_launcher(cluster, nodeSelector={"zone": "b"})
        await until(lambda: cluster.allocated(LAUNCHER))
    assert cluster.record(LAUNCHER)["node"] == "gpu-1"


@pytest.mark.parametrize("launcher", [0, 4])
async def test_a_launcher_that_asks_for_other_gpus_has_no_place(cluster, launcher):
    async with leading(cluster) as leader:
        submit(cluster, launcher=launcher)
        make_workers(cluster)
        await until(lambda: cluster.allocated(*WORKERS))
        cluster.bind(*WORKERS)
        await until(lambda: members(cluster) == "3/3" and cluster.phase() == "Placed")
        assert reserved_gpus(leader) == 0


async def test_a_gang_of_fewer_members_than_its_owner_declares_has_no_place_to_keep(cluster):
    async with leading(cluster):
        submit(cluster)
        make_workers(cluster, size=3)
        await until(lambda: cluster.allocated(*WORKERS))
        cluster.bind(*WORKERS)
        await until(lambda: members(cluster) == "3/3")
