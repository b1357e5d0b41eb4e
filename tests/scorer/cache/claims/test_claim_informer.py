"""The devices that resource claims hold, from the API server to what a leader places."""

import asyncio
import json
from contextlib import asynccontextmanager

import pytest
from msgspec import Struct
from support.dra import a_claim, a_device, a_rule, a_slice, read_slice
from support.servers.claims_cluster import claim_path, claims_node, pod
from support.servers.informers_harness import watching
from support.servers.leader_harness import Cluster, leading
from support.waiting import until

from linkwise.cluster import keys
from linkwise.cluster.cel.values import Version
from linkwise.cluster.nodes.device_pool import Pool
from linkwise.cluster.nodes.node_devices import ClaimedGPUs, node_devices
from linkwise.runtime.kube.client import Kube
from scorer.cache.claims.claim_informer import ClaimInformer
from scorer.cache.claims.node_index import NodeIndex
from scorer.cache.claims.slice_budget import SLICES_MAX
from scorer.cache.nodes.node_informer import NodeInformer

CLAIM = "/apis/resource.k8s.io/v1/namespaces/team/resourceclaims/notebook"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
RULE = "/apis/resource.k8s.io/v1beta2/devicetaintrules/fault"


def hold(cluster, device="gpu-3", path=CLAIM):
    cluster.put(path, a_claim(device, node="gpu-0"))


def publish(cluster, node="gpu-0", name="gpu-0-gpu"):
    """Publish the GPUs of a node as devices."""
    cluster.put(f"{SLICES}/{name}", a_slice(*map(a_device, range(8)), node=node))


@asynccontextmanager
async def informing(cluster, seen):
    """Run an informer that appends what it reports to a list."""
    async with Kube(cluster.url) as kube:
        informer = ClaimInformer(kube, seen.append)
        task = asyncio.create_task(informer.run())
        await informer.synced.wait()
        yield informer
        task.cancel()


def claimed(changed):
    """Return the GPUs that claims hold on the node, if it changed."""
    return changed["gpu-0"].claimed if "gpu-0" in changed else None


HELD = ClaimedGPUs(frozenset({"GPU-3"}))


async def test_gpus_of_claims_are_followed():
    seen = []
    async with Cluster() as cluster:
        cluster.serves_claims = True
        publish(cluster)
        async with informing(cluster, seen):
            hold(cluster)
            await until(lambda: claimed(seen[-1]) == HELD)
            cluster.remove(CLAIM)
            await until(lambda: claimed(seen[-1]) == ClaimedGPUs())


async def test_only_nodes_that_changed_are_reported():
    seen = []
    async with Cluster() as cluster:
        cluster.serves_claims = True
        for name in ("gpu-0", "gpu-1"):
            publish(cluster, name, name)
        async with informing(cluster, seen):
            hold(cluster)
            await until(lambda: claimed(seen[-1]) == HELD)
            assert list(seen[-1]) == ["gpu-0"]
            cluster.put(f"{SLICES}/gpu-1", a_slice(a_device(0), node="gpu-1"))
            await until(lambda: list(seen[-1]) == ["gpu-1"])


async def test_taint_rules_are_followed_where_they_are_served():
    def tainted(changed):
        return [gpu.name for gpu in changed["gpu-0"].pool.gpus if gpu.taint]

    seen = []
    async with Cluster() as cluster:
        cluster.serves_claims = True
        cluster.apis["/apis/resource.k8s.io/v1beta2"] = ["devicetaintrules"]
        for name in ("gpu-0", "gpu-1"):
            publish(cluster, name, name)
        cluster.put(RULE, a_rule("fault", "", "NoExecute", device="gpu-2"))
        async with informing(cluster, seen):
            await until(lambda: tainted(seen[-1]) == ["gpu-2"])
            before = len(seen)
            cluster.put(f"{RULE}-fence", a_rule(keys.PLACED, "", "NoSchedule", pool="gpu-0"))
            cluster.put(RULE, a_rule("fault", "", "NoExecute", device="gpu-5", pool="gpu-0"))
            await until(lambda: tainted(seen[-1]) == ["gpu-5"])
            # Our own fence changes no node.
            assert len(seen) == before + 1
            cluster.remove(RULE)
            await until(lambda: tainted(seen[-1]) == [] and list(seen[-1]) == ["gpu-0"])


async def test_claims_that_bypass_the_fence_are_known_by_device():
    early, late = "2026-01-02T03:04:05Z", "2026-01-02T03:04:06Z"
    async with Cluster() as cluster:
        cluster.serves_claims = True
        for name, time in (("a", late), ("b", early)):
            claim = a_claim("gpu-0", node="gpu-0")
            claim["status"]["allocation"]["allocationTimestamp"] = time
            cluster.put(f"{CLAIM}-{name}", claim)
        async with informing(cluster, []) as informer:
            assert informer.bypasses() == {"gpu-0": {"gpu-0": 1767323046.0}}
            cluster.remove(f"{CLAIM}-a")
            await until(lambda: informer.bypasses() == {"gpu-0": {"gpu-0": 1767323045.0}})


@pytest.mark.parametrize("forbidden", [False, True])
async def test_what_device_classes_offer_is_left_to_kube_scheduler(forbidden):
    """Without the right to read them, all that no node has is: the older ClusterRole has none."""
    async with Cluster() as cluster:
        cluster.serves_claims = True
        cluster.forbidden = {"deviceclasses"} if forbidden else set()
        cluster.put("/apis/resource.k8s.io/v1/deviceclasses/nic", {"metadata": {}, "spec": {}})
        cluster.node()
        cluster.node("cpu", 1, "rdma/hca")
        names = {"by-class": f"{keys.CLASS_RESOURCE_PREFIX}nic", "none": "x/y", "other": "rdma/hca"}
        expected = {"by-class", "none"} if forbidden else {"by-class"}
        async with leading(cluster):
            for name, resource in names.items():
                cluster.pod(name, overhead={resource: "1"})
            await until(lambda: cluster.allocated(*expected))
            cluster.pod("later")
            await until(lambda: cluster.allocated("later"))
            assert {name for name in names if cluster.allocated(name)} == expected


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
            await until(lambda: claimed(seen[-1]) == HELD)
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


CLAIMS_NODE = {"metadata": {"name": "gpu-0", "labels": {keys.NODE_MODE: "topology"}}, "spec": {}}


async def test_a_claims_node_keeps_its_gpus_while_slices_are_missing():
    async with Cluster() as cluster:
        cluster.serves_claims = True
        publish(cluster)
        hold(cluster, "gpu-3")
        cluster.put("/api/v1/nodes/gpu-0", CLAIMS_NODE)
        async with leading(cluster) as leader:
            state = leader.context.informers.state
            before = state.node("gpu-0")
            assert (before.is_claims, before.usable_mask) == (True, 0b11110111)

            cluster.remove(f"{SLICES}/gpu-0-gpu")
            await until(lambda: state.node("gpu-0").pool.missing)
            gone = state.node("gpu-0")
            assert (gone.machine, gone.cards) == (before.machine, before.cards)

            publish(cluster)
            await until(lambda: state.node("gpu-0") == before)


async def test_a_node_that_is_created_again_has_no_past():
    async with Cluster() as cluster:
        cluster.serves_claims = True
        publish(cluster)
        cluster.put("/api/v1/nodes/gpu-0", CLAIMS_NODE)
        async with leading(cluster) as leader:
            state = leader.context.informers.state
            cluster.remove("/api/v1/nodes/gpu-0")
            await until(lambda: state.node("gpu-0") is None)
            cluster.remove(f"{SLICES}/gpu-0-gpu")
            cluster.put("/api/v1/nodes/gpu-0", CLAIMS_NODE)
            await until(lambda: state.node("gpu-0"))
            await until(lambda: not state.node("gpu-0").is_claims)


def kept_objects(thing, seen):
    """Return the number of objects that a value of our own types keeps alive, each counted once."""
    if id(thing) in seen or not isinstance(thing, (dict, tuple, str, Struct, Pool)):
        return 0
    seen.add(id(thing))
    parts = {
        dict: lambda: [*thing.keys(), *thing.values()],
        tuple: lambda: thing,
        str: lambda: (),
        Version: lambda: (),
        Pool: lambda: [thing.devices],
    }.get(type(thing), lambda: [getattr(thing, name) for name in thing.__struct_fields__])
    return 1 + sum(kept_objects(part, seen) for part in parts())


@pytest.mark.no_cover
def test_slices_of_5000_nodes_keep_few_objects():
    seen, index = set(), NodeIndex(lambda found: (found.node,))
    items = {
        ("", f"slice-{i}"): read_slice(a_slice(*map(a_device, range(8)), node=f"node-{i}"))
        for i in range(5000)
    }
    index.update(items, items.keys())
    past = {}
    for node in index.nodes:
        found = node_devices(node, index.of(node), (), ())
        past[node] = found.after(found).known_pools

    kept = kept_objects(items, seen)
    assert kept <= 5000 * (4 + 8 * 12)
    # What stays known while slices are missing shares their devices.
    assert kept_objects(past, seen) <= 5000 * 4


async def test_pods_that_change_together_report_their_node_once(monkeypatch):
    """A new leader lists the pods of thousands of nodes."""
    reported, update = [], NodeInformer.update_devices

    def count(informer, changed):
        reported.append(changed)
        update(informer, changed)

    monkeypatch.setattr(NodeInformer, "update_devices", count)
    async with Cluster() as cluster:
        cluster.serves_claims = True
        claims_node(cluster)
        for gpu in range(8):
            record = {"v": 1, "node": "gpu-0", "gpus": [{"i": gpu}], "plan": f"6-{gpu}"}
            pod(cluster, f"pod-{gpu}", 1)
            raw = cluster[f"pod-{gpu}"]
            raw["metadata"]["annotations"][keys.ALLOCATION] = json.dumps(record)
            cluster.put(f"/api/v1/namespaces/team/pods/pod-{gpu}", raw)
            claim = a_claim(f"gpu-{gpu}", node="gpu-0", owner=f"pod-{gpu}")
            cluster.put(claim_path(f"pod-{gpu}"), claim)
        # So the claims are listed first.
        cluster.outcomes["GET", "/api/v1/pods"].append((500, "no"))
        async with watching(cluster) as informers:
            assert len(informers.claims.claims.items) == 8
            (ledger,) = informers.state.snapshot().nodes
            assert not any(card.claimed for card in ledger.node.cards)
    # Slices, claims and pods each come in one list.
    assert len(reported) <= 3
