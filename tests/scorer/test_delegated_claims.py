"""A leader reports pods whose claims wait at kube-scheduler beside fenced nodes."""

import pytest
import pytest_asyncio
from support.dra import a_claim
from support.servers.claims_cluster import claims_cluster, pod
from support.servers.leader_harness import Clock, leading
from support.waiting import until

from linkwise.cluster import keys

REFUSED = "0/2 nodes are available: 1 cannot allocate all claims, 1 node(s) were unschedulable."
GPU = {"exactly": {"deviceClassName": "gpu.nvidia.com"}}
CLAIM = "/apis/resource.k8s.io/v1/namespaces/team/resourceclaims/notebook"


@pytest_asyncio.fixture
async def cluster():
    async with claims_cluster() as running:
        yield running


def a_waiting_pod(cluster, message=REFUSED, name="notebook", gates=(), status="False", **spec):
    """Create a pod with a claim, and the condition of kube-scheduler."""
    raw = cluster.pod(name, 0, gates=gates)
    references = [{"name": "gpu", "resourceClaimName": "notebook"}]
    condition = {"type": "PodScheduled", "status": status, "message": message}
    body = {
        **raw,
        "spec": {**raw["spec"], "resourceClaims": references, **spec},
        "status": {"phase": "Pending", "conditions": [condition]},
    }
    return cluster.put(f"/api/v1/namespaces/team/pods/{name}", body)


def make_claim(cluster, *requests, allocation=None):
    status = {"allocation": allocation} if allocation else {}
    spec = {"devices": {"requests": [{"name": "gpu", **one} for one in requests]}}
    cluster.put(CLAIM, {"metadata": {}, "spec": spec, "status": status})


async def reported(cluster):
    """Return the pods with an Event that names the fence.

    The Event of the second pod is created after those of the pass that reported the first one.
    """
    for why in ("why first", "why last"):
        cluster.pod(why[-5:].strip(), 0, gates=(), annotations={keys.LEFT_TO_SCHEDULER: why})
        await until(lambda why=why: any(why in one["message"] for one in cluster.events()))
    events = cluster.events("ClaimLeftToScheduler")
    named = (one for one in events if "why" not in one["message"])
    return [one["involvedObject"]["name"] for one in named]


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(GPU, id="a GPU"),
        pytest.param({"exactly": {"deviceClassName": "mig.nvidia.com"}}, id="MIG"),
        pytest.param({"firstAvailable": [{"deviceClassName": "gpu.nvidia.com"}]}, id="first"),
    ],
)
async def test_a_pod_whose_claim_waits_beside_a_fence_has_one_event_that_names_it(
    cluster, request_
):
    make_claim(cluster, request_)
    async with leading(cluster) as leader:
        await until(lambda: leader.context.unfenced() == {})
        a_waiting_pod(cluster)
        await until(lambda: cluster.events("ClaimLeftToScheduler"))
        cluster.reads.clear()
        assert await reported(cluster) == ["notebook"]
        # The claim is read once.
        assert CLAIM not in cluster.reads
    (event,) = [one for one in cluster.events() if one["involvedObject"]["name"] == "notebook"]
    assert "linkwise.dev/placed" in event["message"]
    assert "nvidia.com/gpu there" in event["message"]


async def test_the_claim_of_a_template_counts_by_the_name_that_it_was_given(cluster):
    make_claim(cluster, GPU)
    async with leading(cluster) as leader:
        await until(lambda: leader.context.unfenced() == {})
        references = [{"name": "gpu", "resourceClaimTemplateName": "gpus"}]
        raw = a_waiting_pod(cluster, resourceClaims=references)
        made = [{"name": "gpu", "resourceClaimName": "notebook"}]
        body = {**raw, "status": {**raw["status"], "resourceClaimStatuses": made}}
        cluster.put("/api/v1/namespaces/team/pods/notebook", body)
        await until(lambda: cluster.events("ClaimLeftToScheduler"))


@pytest.mark.parametrize(
    ("request_", "fields"),
    [
        pytest.param({"exactly": {"deviceClassName": "nic.example.com"}}, {}, id="other devices"),
        pytest.param({"exactly": {"deviceClassName": "notgpu.nvidia.com"}}, {}, id="other class"),
        pytest.param(GPU, {"message": "0/1 nodes are available: 1 Insufficient cpu."}, id="cpu"),
        pytest.param(GPU, {"status": "True"}, id="scheduled"),
        pytest.param(GPU, {"nodeName": "gpu-0"}, id="bound"),
    ],
)
async def test_a_pod_that_does_not_wait_for_fenced_gpus_has_no_event(cluster, request_, fields):
    make_claim(cluster, request_)
    async with leading(cluster) as leader:
        await until(lambda: leader.context.unfenced() == {})
        a_waiting_pod(cluster, **fields)
        assert await reported(cluster) == []


async def test_a_pod_whose_claim_has_its_gpus_has_no_event(cluster):
    allocation = a_claim("gpu-1", node="gpu-0")["status"]["allocation"]
    make_claim(cluster, GPU, allocation=allocation)
    async with leading(cluster) as leader:
        await until(lambda: leader.context.unfenced() == {})
        a_waiting_pod(cluster)
        assert await reported(cluster) == []


async def test_without_a_fence_no_claim_is_read(cluster):
    cluster.taint_rules = None
    make_claim(cluster, GPU)
    async with leading(cluster):
        a_waiting_pod(cluster)
        assert await reported(cluster) == []
    assert CLAIM not in cluster.reads


async def test_a_claim_that_cannot_be_read_is_read_again_after_a_minute(cluster):
    make_claim(cluster, GPU)
    cluster.outcomes["GET", CLAIM].append((500, "no"))
    clock = Clock()
    async with leading(cluster, clock=clock) as leader:
        await until(lambda: leader.context.unfenced() == {})
        a_waiting_pod(cluster)
        assert await reported(cluster) == []
        clock.now += 60
        await until(lambda: len(cluster.events("ClaimLeftToScheduler")) == 3)


async def test_a_pod_that_linkwise_places_has_no_event(cluster):
    async with leading(cluster) as leader:
        await until(lambda: leader.context.unfenced() == {})
        pod(cluster, "solo", 2)
        await until(lambda: cluster.allocated("solo"))
        condition = {"type": "PodScheduled", "status": "False", "message": REFUSED}
        status = {"phase": "Pending", "conditions": [condition]}
        cluster.put("/api/v1/namespaces/team/pods/solo", {**cluster["solo"], "status": status})
        assert await reported(cluster) == []
