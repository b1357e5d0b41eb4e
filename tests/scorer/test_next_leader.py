"""The next leader knows where units could not be bound."""

import json

import pytest_asyncio
from support.servers.leader_harness import Clock, leading
from support.servers.running_cluster import NONE_YET, Running
from support.waiting import until

from linkwise.cluster import keys
from linkwise.cluster.scorer_lease import LEASE

LACKING = "0/1 nodes are available: 1 Insufficient rdma/hca."


@pytest_asyncio.fixture
async def cluster():
    async with Running() as running:
        running.node("gpu-1")
        running.take_lease(7)
        yield running


def published(cluster):
    text = cluster.get(LEASE)["metadata"].get("annotations", {}).get(keys.EXCLUDED_NODES)
    return [node for nodes in json.loads(text or "{}").values() for node in nodes]


async def test_the_replacement_of_a_pod_goes_to_another_node_under_the_next_leader(cluster):
    clock = Clock()
    async with leading(cluster, clock=clock):
        cluster.owned("first", 8)
        await until(lambda: cluster.allocated("first"))
        refused = cluster.record("first")["node"]
        cluster.mark_unschedulable("first", message=LACKING)
        await until(lambda: [one for one in cluster.events() if "rdma" in str(one)])
        clock.now += 5
        cluster.policy(NONE_YET)
        await until(lambda: cluster.ending("first"))
        cluster.delete("first")
        await until(lambda: published(cluster) == [refused])
    cluster.take_lease(8)
    async with leading(cluster, term=8, clock=clock):
        cluster.owned("second", 8)
        await until(lambda: cluster.allocated("second"))
        assert published(cluster) == [refused]
    assert cluster.record("second")["node"] != refused
