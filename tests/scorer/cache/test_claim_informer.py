"""The devices that resource claims hold, from the API server to what a leader places."""

import asyncio
from contextlib import asynccontextmanager

from support.servers.leader_harness import Cluster, leading
from support.waiting import until

from cluster.nodes.device_claims import ClaimedGPUs
from runtime.kube.client import Kube
from scorer.cache.claim_informer import ClaimInformer
from scorer.cache.slice_budget import SLICES_MAX

CLAIM = "/apis/resource.k8s.io/v1/namespaces/team/resourceclaims/notebook"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
DRIVER = "gpu.nvidia.com"


def hold(cluster, device="gpu-3", path=CLAIM):
    result = {"driver": DRIVER, "pool": "gpu-0", "device": device, "request": "gpu"}
    status = {"allocation": {"devices": {"results": [result]}}}
    cluster.put(path, {"metadata": {}, "spec": {}, "status": status})


def publish(cluster, node="gpu-0", name="gpu-0-gpu"):
    """Publish the GPUs of a node as devices."""
    devices = [
        {"name": f"gpu-{i}", "attributes": {"uuid": {"string": f"GPU-{i}"}}} for i in range(8)
    ]
    spec = {"driver": DRIVER, "nodeName": node, "pool": {"name": node}, "devices": devices}
    cluster.put(f"{SLICES}/{name}", {"metadata": {}, "spec": spec})


@asynccontextmanager
async def informing(cluster, seen):
    """Run an informer that appends what it sees to a list."""
    async with Kube(cluster.url) as kube:
        informer = ClaimInformer(kube, seen.append)
        task = asyncio.create_task(informer.run())
        await informer.synced.wait()
        yield informer
        task.cancel()


async def test_gpus_of_claims_are_followed():
    seen = []
    async with Cluster() as cluster:
        cluster.serves_claims = True
        publish(cluster)
        async with informing(cluster, seen):
            hold(cluster)
            await until(lambda: seen[-1] == {"gpu-0": ClaimedGPUs(frozenset({"GPU-3"}))})
            cluster.remove(CLAIM)
            await until(lambda: seen[-1] == {})


async def test_claims_without_gpus_cause_no_change():
    seen = []
    async with Cluster() as cluster:
        cluster.serves_claims = True
        publish(cluster)
        async with informing(cluster, seen) as informer:
            before = len(seen)
            for number in range(3):
                cluster.put(f"{CLAIM}-{number}", {"metadata": {}, "spec": {}})
            hold(cluster)
            await until(lambda: len(seen) > before)
            assert len(seen) == before + 1
            # Tenants can create any number of them.
            assert list(informer.claims.items) == [("team", "notebook")]


async def test_few_slices_of_a_node_are_kept():
    seen = []
    async with Cluster() as cluster:
        cluster.serves_claims = True
        publish(cluster)
        for number in range(SLICES_MAX):
            publish(cluster, "hostile", f"hostile-{number}")
        async with informing(cluster, seen) as informer:
            for number in range(SLICES_MAX, 2 * SLICES_MAX):
                publish(cluster, "hostile", f"hostile-{number}")
            hold(cluster)
            await until(lambda: seen[-1] == {"gpu-0": ClaimedGPUs(frozenset({"GPU-3"}))})
            await until(lambda: len(informer.slices.items) == SLICES_MAX + 1)
            cluster.remove(f"{SLICES}/hostile-0")
            await until(lambda: len(informer.slices.items) == SLICES_MAX)
            publish(cluster, "hostile", "hostile-1000")
            await until(lambda: ("", "hostile-1000") in informer.slices.items)
            assert len(informer.slices.items) == SLICES_MAX + 1


async def test_a_leader_places_nothing_on_gpus_of_claims():
    async with Cluster() as cluster:
        cluster.serves_claims = True
        publish(cluster)
        hold(cluster, "gpu-3")
        cluster.node()
        async with leading(cluster) as leader:
            node = leader.context.informers.state.node("gpu-0")
            # Its cards have no UUIDs, so it is not known which of them the claim holds.
            assert "resource claim holds" in node.mismatch
            cluster.remove(CLAIM)
            cluster.pod("solo", 8)
            await until(lambda: cluster.allocated("solo"))


async def test_a_leader_works_where_claims_are_not_served():
    async with Cluster() as cluster:
        cluster.node()
        async with leading(cluster):
            cluster.pod("solo", 8)
            await until(lambda: cluster.allocated("solo"))


async def test_a_leader_waits_for_the_list_of_claims():
    async with Cluster() as cluster:
        cluster.serves_claims = True
        cluster.outcomes["GET", "/apis/resource.k8s.io/v1/resourceclaims"] += [(500, "not now")] * 3
        cluster.node()
        async with leading(cluster):
            assert not cluster.outcomes["GET", "/apis/resource.k8s.io/v1/resourceclaims"]
