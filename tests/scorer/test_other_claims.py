"""A leader places pods where their claims of other DRA drivers have devices."""

import pytest
import pytest_asyncio
from support.dra import a_claim
from support.servers.leader_harness import Cluster, leading
from support.waiting import until

CLAIMS = "/apis/resource.k8s.io/v1/namespaces/team/resourceclaims"
NODES = ("gpu-0", "gpu-1", "gpu-2")


@pytest_asyncio.fixture
async def cluster():
    async with Cluster() as running:
        running.serves_claims = True
        for name in NODES:
            running.node(name)
        yield running


def naming(claim):
    """Return the spec of a pod that names a claim."""
    return {"resourceClaims": [{"name": "nic", "resourceClaimName": claim}]}


def allocate(cluster, node, name="nic"):
    """Give a claim devices of another driver on a node."""
    claim = a_claim("nic-0", node=node, name=name, driver="nics.example")
    cluster.put(f"{CLAIMS}/{name}", claim)


async def test_a_pod_goes_where_its_claim_has_devices(cluster):
    allocate(cluster, "gpu-2")
    async with leading(cluster):
        cluster.pod("train", **naming("nic"))
        await until(lambda: cluster.allocated("train"))
    assert cluster.record("train")["node"] == "gpu-2"


async def test_a_gang_waits_while_its_node_is_full_and_is_free_once_the_claim_is(cluster):
    allocate(cluster, "gpu-2")
    async with leading(cluster):
        cluster.pod("other", 8, nodeSelector={"kubernetes.io/hostname": "gpu-2"})
        await until(lambda: cluster.allocated("other"))
        cluster.gang("bert", 2, 4, **naming("nic"))
        reason = "devices of a claim of the pod are elsewhere (2)"
        await until(lambda: reason in cluster.the_gang().get("status", {}).get("reason", ""))
        assert not cluster.allocated("bert-0")

        allocate(cluster, "gpu-1")
        await until(lambda: cluster.allocated("bert-0", "bert-1"))
    assert cluster.record("bert-0")["node"] == "gpu-1"


@pytest.mark.parametrize("exists", [False, True])
async def test_a_claim_without_devices_is_left_to_kube_scheduler(cluster, exists):
    if exists:
        cluster.put(f"{CLAIMS}/nic", {"metadata": {}, "spec": {}})
    async with leading(cluster):
        cluster.pod("train", **naming("nic"))
        await until(lambda: cluster.allocated("train"))


async def test_the_claim_of_a_template_counts_once_it_is_made(cluster):
    allocate(cluster, "gpu-1", "train-nic-x7k2p")
    async with leading(cluster):
        spec = {"resourceClaims": [{"name": "nic", "resourceClaimTemplateName": "nic"}]}
        raw = cluster.pod("train", **spec, gates=["example.org/later", "linkwise.dev/gang"])
        made = [{"name": "nic", "resourceClaimName": "train-nic-x7k2p"}]
        cluster.put(
            "/api/v1/namespaces/team/pods/train",
            {
                **raw,
                "spec": {**raw["spec"], "schedulingGates": [{"name": "linkwise.dev/gang"}]},
                "status": {"phase": "Pending", "resourceClaimStatuses": made},
            },
        )
        await until(lambda: cluster.allocated("train"))
    assert cluster.record("train")["node"] == "gpu-1"
