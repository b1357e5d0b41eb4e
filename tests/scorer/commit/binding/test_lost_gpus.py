"""Pods that are planned on a counted node, beside pods that another scheduler binds there."""

import pytest
import pytest_asyncio
from support.builders import a_pod
from support.servers.leader_harness import JOB, Clock, Cluster, leading
from support.waiting import until

from linkwise.cluster import keys

REPLICA_SET = {**JOB, "kind": "ReplicaSet", "apiVersion": "apps/v1"}


@pytest_asyncio.fixture
async def cluster():
    async with Cluster() as running:
        for name in ("gpu-0", "gpu-1"):
            running.node(name, 8, keys.NVIDIA_GPU, **{keys.NODE_MODE: "default"})
        yield running


def worker(cluster, index, uid=None, **pod):
    """Create a gated worker with 2 GPUs."""
    ask = {"containers": [{"name": "c", "resources": {"limits": {keys.NVIDIA_GPU: "2"}}}]}
    name = f"bert-{index}"
    cluster.pod(name, 0, gang="bert", uid=uid or name, **{"owner": REPLICA_SET, **ask, **pod})


def other(cluster, name, node, gpus):
    """Bind a pod of another scheduler."""
    raw = a_pod({keys.NVIDIA_GPU: gpus}, name=name, nodeName=node)
    raw["metadata"] |= {"namespace": "team", "uid": name}
    cluster.put(f"/api/v1/namespaces/team/pods/{name}", {**raw, "status": {"phase": "Running"}})


async def planned(cluster, **pod):
    """Create a gang that is planned on one node; return the node."""
    for i in (0, 1):
        worker(cluster, i, **pod)
    await until(lambda: cluster.record("bert-0") and cluster.record("bert-1"))
    record = cluster.record("bert-0")
    assert (record["gpus"], record["count"]) == (None, 2)
    return record["node"]


async def test_gang_whose_gpus_were_taken_is_planned_on_another_node(cluster):
    async with leading(cluster, clock=Clock()):
        node = await planned(cluster)
        other(cluster, "stock", node, 5)
        cluster.bind("bert-0")
        cluster.mark_unschedulable("bert-1")
        await until(lambda: not cluster["bert-0"] and not cluster["bert-1"])
        for i in (0, 1):
            worker(cluster, i, f"new-{i}")
        await until(lambda: cluster.record("bert-0") and cluster.record("bert-1"))

        assert cluster.record("bert-0")["node"] != node


@pytest.mark.parametrize(
    ("gpus", "owner", "capacity"),
    [
        pytest.param(4, REPLICA_SET, 8, id="gpus are left"),
        pytest.param(5, None, 8, id="bare pods"),
        pytest.param(4, REPLICA_SET, 0, id="plugin restarts"),
    ],
)
async def test_gang_stays_where_it_may_still_be_bound(cluster, gpus, owner, capacity):
    clock = Clock()
    async with leading(cluster, clock=clock):
        node = await planned(cluster, owner=owner)
        other(cluster, "stock", node, gpus)
        if not capacity:
            path = f"/api/v1/nodes/{node}"
            raw = cluster.get(path)
            allocatable = {**raw["status"]["allocatable"], keys.NVIDIA_GPU: "0"}
            cluster.put(path, {**raw, "status": {**raw["status"], "allocatable": allocatable}})
        cluster.mark_unschedulable("bert-0", "bert-1")
        clock.now += 30
        # Once a later pod is placed, the planner has seen this.
        gated = {"containers": [{"name": "c", "resources": {"limits": {keys.NVIDIA_GPU: "1"}}}]}
        cluster.pod("seen", 0, **gated)
        await until(lambda: cluster.record("seen"))

        assert cluster["bert-0"]
        assert cluster["bert-1"]
        assert not [path for _, path, _ in cluster.writes if path.endswith("/eviction")]
