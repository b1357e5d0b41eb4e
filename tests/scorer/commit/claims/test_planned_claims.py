"""The ResourceClaims of a plan: created before its pods are patched, all of them or none."""

import asyncio
import re
from contextlib import asynccontextmanager
from dataclasses import replace

import msgspec
import pytest
import pytest_asyncio
from prometheus_client import CollectorRegistry
from support.builders import a_claimed_pod, a_held_pod, a_node, exact
from support.servers.leader_harness import SHORT, Clock, Cluster
from support.waiting import PATIENCE, until

from linkwise.cluster import keys
from linkwise.cluster.allocations.gpus import Exact, GPUShare
from linkwise.cluster.allocations.record import Allocation
from linkwise.cluster.objects.container import Container, ResourceClaim, Resources
from linkwise.cluster.objects.pod import Pod
from linkwise.planning.gang.pod_info import pod_info
from linkwise.planning.placement.result import Placement
from linkwise.runtime.kube.client import Kube
from linkwise.runtime.kube.event_recorder import EventRecorder
from scorer.cache.informers import Informers
from scorer.commit.handle import Handle
from scorer.commit.write.committer import Committer, PodAllocation
from scorer.metrics import Metrics
from scorer.queue.fault_isolation import FaultIsolation
from scorer.report.status_reporter import StatusReporter

TERM = 7
CLAIMS = "/apis/resource.k8s.io/v1/resourceclaims"
QUOTA = (
    403,
    'resourceclaims.resource.k8s.io "x" is forbidden: exceeded quota: gpus, requested: '
    "requests.nvidia.com/gpu=1, used: requests.nvidia.com/gpu=2, limited: "
    "requests.nvidia.com/gpu=2",
)
NODE = a_node("gpu-0", uuids=True)


@pytest_asyncio.fixture
async def cluster():
    async with Cluster() as running:
        running.term = TERM
        yield running


@asynccontextmanager
async def committing(cluster, term=TERM):
    """Yield a committer of one leader, and its metrics."""
    registry = CollectorRegistry()
    async with Kube(cluster.url, timeout=PATIENCE) as kube:
        informers, metrics, clock = Informers(kube), Metrics(registry), Clock()
        faults = FaultIsolation(metrics, informers.changed.set)
        recorder = EventRecorder(kube, "scorer", "scorer-0", clock, lambda *_: None)
        reporter = StatusReporter(
            kube, informers, recorder, faults, clock, term=term, timings=SHORT
        )
        handle = Handle(kube, informers, reporter, metrics, faults, term, clock, SHORT)
        committer = Committer(handle)
        committer._fence_checked = True
        yield committer, registry


def claim_path(i, namespace="team"):
    return f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/lw-{i:032x}"


def a_pod_with_claim(i, gpus):
    raw, claimed = a_held_pod(0, f"bert-{i}"), a_claimed_pod(gpus)
    references = [{"name": keys.POD_CLAIM, "resourceClaimName": f"lw-{i:032x}"}]
    raw["spec"] |= {**claimed["spec"], "resourceClaims": references}
    raw["metadata"]["annotations"] = claimed["metadata"]["annotations"]
    return raw


def planned(cluster, count, gpus=2, *, first=0):
    """Create pods, and return their allocations: GPUs of a node in their order, from `first`."""
    return [
        allocation(cluster, i, range(first + i * gpus, first + (i + 1) * gpus))
        for i in range(count)
    ]


def allocation(cluster, i, indices):
    path = f"/api/v1/namespaces/team/pods/bert-{i}"
    stored = cluster.get(path) or cluster.put(path, a_pod_with_claim(i, len(indices)))
    pod = pod_info(msgspec.convert(stored, Pod))
    gpus = Exact(tuple(GPUShare(i, f"GPU-gpu-0-{i}") for i in indices))
    placement = Placement(pod.member, "gpu-0", gpus)
    return PodAllocation(pod, placement, Allocation("gpu-0", gpus, plan="7-1"), NODE)


def changed(allocation, **spec):
    """Return the allocation of a pod with another spec."""
    member = allocation.placement.member
    pod = msgspec.structs.replace(member.pod, spec=msgspec.structs.replace(member.pod.spec, **spec))
    placement = replace(allocation.placement, member=replace(member, pod=pod))
    return replace(allocation, placement=placement)


def sent(cluster):
    """Return the method and the last part of the path of each write."""
    return [(method, path.rpartition("/")[2]) for method, path, _ in cluster.writes]


def claims(cluster):
    """Return the UUIDs that each claim selects, by its pod."""
    return {
        claim["metadata"]["ownerReferences"][0]["name"]: re.findall(r"'(GPU-[^']*)'", str(claim))
        for claim in cluster.all(CLAIMS)
    }


def refuse_claim(cluster, i, answer, *, method="POST"):
    def refuse(verb, path, body):
        is_claim = "resourceclaims" in path and verb == method
        name = (body or {}).get("metadata", {}).get("name") or path.rpartition("/")[2]
        return answer if is_claim and name == f"lw-{i:032x}" else None

    cluster.refuse = refuse


def conflicts(registry):
    return registry.get_sample_value("linkwise_claim_conflicts_total")


async def commit(cluster, allocations, *, term=TERM):
    """Commit a plan; return the refused pods, and the number of conflicts."""
    async with committing(cluster, term) as (committer, registry):
        refused = await committer.commit(allocations, dry_run=False)
        return refused, conflicts(registry)


# ---- Order and number of writes.


async def test_all_claims_are_created_before_the_first_pod_is_patched(cluster):
    refused, _ = await commit(cluster, planned(cluster, 3))

    assert refused == []
    assert sent(cluster) == [("POST", "resourceclaims")] * 3 + [
        ("PATCH", name) for _, name in sent(cluster)[3:]
    ]
    assert sorted(sent(cluster)[3:]) == [("PATCH", f"bert-{i}") for i in range(3)]
    assert cluster.reads == []
    assert claims(cluster) == {
        f"bert-{i}": [f"GPU-gpu-0-{2 * i}", f"GPU-gpu-0-{2 * i + 1}"] for i in range(3)
    }


async def test_a_claim_belongs_to_its_pod_and_tolerates_the_fence(cluster):
    await commit(cluster, planned(cluster, 1))

    (claim,) = cluster.all(CLAIMS)
    (owner,) = claim["metadata"]["ownerReferences"]
    assert (owner["uid"], owner["controller"]) == (cluster["bert-0"]["metadata"]["uid"], True)
    assert "blockOwnerDeletion" not in owner
    (request,) = claim["spec"]["devices"]["requests"]
    assert [one["key"] for one in request["exactly"]["tolerations"]] == [keys.PLACED]


# ---- Refusals.


async def test_a_quota_that_refuses_the_third_of_eight_claims_leaves_nothing(cluster):
    allocations = planned(cluster, 8, gpus=1)
    refuse_claim(cluster, 2, QUOTA)
    refused, _ = await commit(cluster, allocations)

    assert [refusal.pod.name for refusal in refused] == [f"bert-{i}" for i in range(8)]
    assert {refusal.summary for refusal in refused} == {"its resource claims cannot be created"}
    assert "claim of pod bert-2: " in refused[0].reason
    assert "exceeded quota: gpus" in refused[0].reason
    assert not refused[0].is_invalid
    assert claims(cluster) == {}
    assert not [path for method, path, _ in cluster.writes if method == "PATCH"]


async def test_an_invalid_claim_is_not_retried_soon(cluster):
    allocations = planned(cluster, 1)
    refuse_claim(cluster, 0, (422, "spec.devices: Invalid value"))
    (refusal,), _ = await commit(cluster, allocations)

    assert refusal.is_invalid


async def test_a_container_without_its_request_in_the_claim_is_refused(cluster):
    first, second = planned(cluster, 2)
    claims = [ResourceClaim(name=keys.POD_CLAIM, request="container-1")]
    containers = [Container(name="main", resources=Resources(claims=claims))]
    refused, _ = await commit(cluster, [first, changed(second, containers=containers)])

    assert "container main refers to request 'container-1'" in refused[0].reason
    assert cluster.writes == []


async def test_gpus_without_uuid_are_refused(cluster):
    (one,) = planned(cluster, 1)
    record = replace(one.record, gpus=exact(0, 1))
    refused, _ = await commit(cluster, [replace(one, record=record)])

    assert "GPU 0 has no valid UUID" in refused[0].reason
    assert cluster.writes == []


async def test_the_claim_of_a_pod_whose_patch_is_refused_is_deleted(cluster):
    allocations = planned(cluster, 2)
    cluster.fail("PATCH", "bert-1", (403, "no"))
    refused, _ = await commit(cluster, allocations)

    assert [refusal.pod.name for refusal in refused] == ["bert-1"]
    assert list(claims(cluster)) == ["bert-0"]


async def test_a_deletion_without_an_answer_is_sent_again(cluster):
    allocations = planned(cluster, 2)
    refuse_claim(cluster, 1, QUOTA)
    cluster.outcomes["DELETE", claim_path(0)] += ["lost", (500, "busy")]
    await commit(cluster, allocations)

    assert claims(cluster) == {}


# ---- Writes without an answer.


@pytest.mark.parametrize("count", [1, 3])
async def test_a_creation_without_an_answer_is_read_back(cluster, count):
    allocations = planned(cluster, count)
    path = claim_path(0).rpartition("/")[0]
    cluster.outcomes["POST", path].append("unanswered")
    refused, seen = await commit(cluster, allocations)

    assert refused == []
    assert len(claims(cluster)) == count
    assert len(cluster.reads) == 1
    assert seen == 0


async def test_a_creation_that_was_not_carried_out_is_refused(cluster):
    allocations = planned(cluster, 1)
    cluster.outcomes["POST", claim_path(0).rpartition("/")[0]].append("lost")
    refused, _ = await commit(cluster, allocations)

    assert len(refused) == 1
    assert not cluster.patches("bert-0")


# ---- Claims that exist already.


async def test_a_successor_replaces_the_claims_of_an_interrupted_plan(cluster):
    allocations = planned(cluster, 2)
    for i in range(2):
        cluster.fail("PATCH", f"bert-{i}", asyncio.Event())
    interrupted = asyncio.create_task(commit(cluster, allocations))
    await until(lambda: len(claims(cluster)) == 2)
    interrupted.cancel()
    await asyncio.wait((interrupted,))
    cluster.outcomes.clear()
    cluster.term = TERM + 1

    refused, seen = await commit(cluster, planned(cluster, 2, first=4), term=TERM + 1)

    assert refused == []
    assert seen == 0
    assert claims(cluster) == {
        "bert-0": ["GPU-gpu-0-4", "GPU-gpu-0-5"],
        "bert-1": ["GPU-gpu-0-6", "GPU-gpu-0-7"],
    }


async def test_a_past_leader_does_not_replace_a_claim_of_its_successor(cluster):
    allocations = planned(cluster, 1)
    cluster.term = TERM + 1
    await commit(cluster, allocations, term=TERM + 1)
    before = cluster.all(CLAIMS)

    refused, _ = await commit(cluster, allocations)

    assert "exists already" in refused[0].reason
    assert cluster.all(CLAIMS) == before


OTHER = {"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "uid-x", "controller": True}


@pytest.mark.parametrize(
    ("metadata", "status", "is_replaced"),
    [
        pytest.param({}, {}, True, id="without owner"),
        pytest.param({}, {"allocation": {}}, False, id="without owner, in use"),
        pytest.param({"ownerReferences": [OTHER]}, {}, False, id="of another owner"),
    ],
)
async def test_a_claim_of_others_under_the_name_is_a_conflict(
    cluster, metadata, status, is_replaced
):
    spec = {"devices": {"requests": [{"name": "container-0", "exactly": {}}]}}
    cluster.put(claim_path(0), {"metadata": metadata, "spec": spec, "status": status})
    refused, seen = await commit(cluster, planned(cluster, 2))

    assert seen == 1
    if is_replaced:
        assert refused == []
        assert list(claims(cluster)["bert-0"]) == ["GPU-gpu-0-0", "GPU-gpu-0-1"]
    else:
        assert "exists already" in refused[0].reason
        assert [claim["spec"] for claim in cluster.all(CLAIMS)] == [spec]


async def test_a_claim_that_changes_before_it_is_replaced_stays(cluster):
    """Between the read and the deletion a scheduler may allocate it."""
    cluster.put(claim_path(0), {"metadata": {}, "spec": {}})

    def allocate(method, path, _body):
        if method == "DELETE" and path == claim_path(0):
            status = {"allocation": {}}
            cluster.refuse = lambda *_: None
            cluster.put(path, {"metadata": {}, "spec": {}, "status": status})

    cluster.refuse = allocate
    refused, _ = await commit(cluster, planned(cluster, 1))

    assert "it is in use" in refused[0].reason
    assert len(cluster.all(CLAIMS)) == 1


async def test_a_name_that_is_taken_again_and_again_is_given_up(cluster):
    cluster.put(claim_path(0), {"metadata": {}, "spec": {}})
    create = cluster._delete

    def taken_again(request, place, body):
        answer = create(request, place, body)
        cluster.put(request.path, {"metadata": {}, "spec": {}})
        return answer

    cluster._delete = taken_again
    refused, seen = await commit(cluster, planned(cluster, 1))

    assert "again and again" in refused[0].reason
    assert seen == 4


async def test_two_pods_with_one_claim_are_refused(cluster):
    one, two = planned(cluster, 2)
    two = changed(two, resource_claims=one.placement.member.pod.spec.resource_claims)
    refused, _ = await commit(cluster, [one, two])

    assert len(refused) == 2
    assert claims(cluster) == {}
