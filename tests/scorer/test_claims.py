"""A leader places pods by claims, and books what these claims hold."""

import pytest
import pytest_asyncio
from support.builders import a_pod
from support.dra import a_claim, a_device, a_slice
from support.servers.claims_cluster import (
    SLICE,
    allocate,
    claim_path,
    claims_cluster,
    pod,
    publish,
    selected,
)
from support.servers.leader_harness import JOB, Clock, leading
from support.waiting import until

from linkwise.cluster import keys
from linkwise.cluster.scorer_lease import LEASE
from linkwise.runtime.process.clock import rfc3339

CLAIMS = "/apis/resource.k8s.io/v1/resourceclaims"
RULES = "/apis/resource.k8s.io/v1/devicetaintrules"
FOREIGN = "/apis/resource.k8s.io/v1/namespaces/other/resourceclaims/foreign"
QUOTA = 'resourceclaims "x" is forbidden: exceeded quota: gpus'


@pytest_asyncio.fixture
async def cluster():
    async with claims_cluster() as running:
        yield running


def ledger(leader):
    return leader.context.informers.state.ledger("gpu-0")


def held(leader):
    """Return the GPU indices of each pod."""
    return {
        holding.pod.partition("/")[2]: list(holding.gpus.indices)
        for holding in ledger(leader).holdings.values()
    }


def closed(leader):
    return [i for i, card in enumerate(ledger(leader).node.cards) if card.claimed]


async def test_a_gang_gets_claims_for_the_gpus_of_its_records(cluster):
    async with leading(cluster) as leader:
        for i in range(2):
            pod(cluster, f"bert-{i}", 4, gang="bert")
        await until(lambda: cluster.allocated("bert-0", "bert-1"))
        await until(lambda: leader.context.unfenced() == {})
        assert leader.report().nodes.taint_rules == 1

        for i in range(2):
            recorded = [gpu["uuid"] for gpu in cluster.record(f"bert-{i}")["gpus"]]
            assert selected(cluster, f"bert-{i}") == recorded
            assert not cluster[f"bert-{i}"]["spec"].get("schedulingGates")
    assert len(cluster.all(RULES)) == 1


async def test_a_gang_waits_whole_while_a_quota_refuses_one_claim(cluster):
    refused = claim_path("bert-1").rpartition("/")[2]

    def refuse(method, path, body):
        if method == "POST" and path.endswith("claims") and body["metadata"]["name"] == refused:
            return 403, QUOTA
        return None

    cluster.refuse = refuse
    async with leading(cluster):
        for i in range(2):
            pod(cluster, f"bert-{i}", 4, gang="bert")
        await until(lambda: cluster.events("GangWaiting"))
        (event,) = cluster.events("GangWaiting")
        assert "its resource claims cannot be created: claim of pod bert-1: " in event["message"]
        assert "exceeded quota: gpus" in event["message"]
        assert not cluster.patches("bert-0")
        cluster.refuse = lambda *_: None
        await until(lambda: cluster.allocated("bert-0", "bert-1"))


async def test_a_pod_of_higher_priority_gets_the_gpus_that_claims_of_a_gang_held(cluster):
    cluster.policy("gangs: {preemption: {minRunMinutes: 0}}")
    cluster.put(LEASE, {"metadata": {}, "spec": {"leaseTransitions": 7}})
    low = ("low-0", "low-1")
    async with leading(cluster, term=7) as leader:
        for name in low:
            pod(cluster, name, 4, gang="low", owner={**JOB, "kind": "ReplicaSet"})
        await until(lambda: cluster.allocated(*low))
        for name in low:
            allocate(cluster, name, *(f"gpu-{i}" for i in held(leader)[name]))
        cluster.bind(*low)
        pod(cluster, "high", 8, priority=10)
        await until(lambda: not any(cluster[name] for name in low))
        for name in low:
            # The claims of pods that are gone hold GPUs until kube-controller-manager deletes them.
            assert not cluster.allocated("high")
            cluster.remove(claim_path(name))
        await until(lambda: cluster.allocated("high"))

    assert len(selected(cluster, "high")) == 8


async def test_the_claim_of_a_pod_closes_no_gpu_and_that_of_others_does(cluster):
    cluster.put(FOREIGN, a_claim("gpu-7", node="gpu-0", name="foreign"))
    async with leading(cluster) as leader:
        pod(cluster, "solo", 2)
        await until(lambda: cluster.allocated("solo"))
        allocate(cluster, "solo", *(f"gpu-{i}" for i in held(leader)["solo"]))
        await until(lambda: len(leader.context.informers.claims.claims.items) == 2)
        await until(lambda: closed(leader) == [7])
        assert ledger(leader).unaccounted is None


@pytest.mark.parametrize("is_selected", [False, True], ids=["any node", "our nodes"])
async def test_a_pod_by_extended_resource_holds_what_its_claim_holds(cluster, is_selected):
    """kube-scheduler makes the claim of such a pod, as before the node was given to Linkwise."""
    raw = a_pod({keys.NVIDIA_GPU: 2}, name="plain", nodeName="gpu-0")
    raw["spec"]["nodeSelector"] = {keys.NODE_MODE: "topology"} if is_selected else {}
    raw["metadata"] |= {"namespace": "team", "uid": "plain"}
    asked = {"containerName": "c", "resourceName": keys.NVIDIA_GPU, "requestName": "container-0"}
    made = {"resourceClaimName": "plain-gpus", "requestMappings": [asked]}
    status = {"phase": "Running", "extendedResourceClaimStatus": made}
    claims = "/apis/resource.k8s.io/v1/namespaces/team/resourceclaims/plain-gpus"
    cluster.put(claims, a_claim("gpu-3", "gpu-6", node="gpu-0", name="plain-gpus", owner="plain"))
    async with leading(cluster) as leader:
        cluster.put("/api/v1/namespaces/team/pods/plain", {**raw, "status": status})
        await until(lambda: leader.context.informers.state.pod(("team", "plain")))
        for i in range(2):
            pod(cluster, f"bert-{i}", 3, gang="bert")
        await until(lambda: cluster.allocated("bert-0", "bert-1"))
        assert closed(leader) == [3, 6]
        gpus = held(leader)
        assert sorted(gpus["bert-0"] + gpus["bert-1"]) == [0, 1, 2, 4, 5, 7]


async def test_without_its_claim_a_pod_by_extended_resource_leaves_the_node_unaccounted(cluster):
    raw = a_pod({keys.NVIDIA_GPU: 2}, name="plain", nodeName="gpu-0")
    raw["metadata"] |= {"namespace": "team", "uid": "plain"}
    async with leading(cluster) as leader:
        cluster.put("/api/v1/namespaces/team/pods/plain", {**raw, "status": {"phase": "Running"}})
        await until(lambda: "has GPUs of this node" in str(ledger(leader).unaccounted))


async def test_the_devices_of_a_claim_are_booked_where_they_are_not_the_planned_ones(cluster):
    async with leading(cluster) as leader:
        pod(cluster, "solo", 2)
        await until(lambda: cluster.allocated("solo"))
        allocate(cluster, "solo", "gpu-5", "gpu-6")
        await until(lambda: held(leader) == {"solo": [5, 6]})
        cluster.bind("solo")
        publish(cluster, [1, 0, 2, 3, 4, 7, 6, 5])
        # After a reboot the names belong to other GPUs.
        await until(lambda: held(leader) == {"solo": [6, 7]})
        assert ledger(leader).unaccounted is None


async def test_a_gang_keeps_its_claims_while_the_driver_restarts_with_other_names(cluster):
    """Between the plan and the allocation: the claims select GPUs by their UUIDs."""
    async with leading(cluster) as leader:
        for i in range(2):
            pod(cluster, f"bert-{i}", 2, gang="bert")
        await until(lambda: cluster.allocated("bert-0", "bert-1"))
        planned = held(leader)
        specs = {name: cluster.get(claim_path(name))["spec"] for name in planned}
        # One of two slices of the new generation, next to the last one of the old generation.
        half, rest = f"{SLICE}-half", f"{SLICE}-rest"
        publish(cluster, [7, 6, 5, 4], half, generation=2, count=2, name="half")
        await until(lambda: leader.report().nodes.incomplete == 1)
        cluster.remove(SLICE)
        names = {f"gpu-{minor}": minor for minor in range(4, 8)}
        devices = [a_device(7 - minor, name=name) for name, minor in names.items()]
        cluster.put(rest, a_slice(*devices, node="gpu-0", generation=2, count=2, name="rest"))
        await until(lambda: leader.report().nodes.incomplete == 0)
        for name, gpus in planned.items():
            allocate(cluster, name, *(f"gpu-{7 - i}" for i in gpus))
        cluster.bind("bert-0", "bert-1")
        await until(lambda: cluster.phase() == "Placed")
        assert held(leader) == planned
        assert {name: cluster.get(claim_path(name))["spec"] for name in planned} == specs
    assert not cluster.events("ClaimDiffers")
    assert not [path for method, path, _ in cluster.writes if method == "DELETE"]


async def test_after_a_reboot_with_other_names_the_holders_are_those_of_the_slices(cluster):
    async with leading(cluster) as leader:
        pod(cluster, "solo", 3)
        await until(lambda: cluster.allocated("solo"))
        planned = held(leader)["solo"]
        allocate(cluster, "solo", *(f"gpu-{i}" for i in planned))
        cluster.bind("solo")
        now = sorted(7 - i for i in planned)
        publish(cluster, range(7, -1, -1))
        await until(lambda: held(leader) == {"solo": now})
        assert leader.report().nodes.incomplete == 0
        # While slices are missing, the last ones count.
        cluster.remove(SLICE)
        await until(lambda: leader.report().nodes.incomplete == 1)
        assert held(leader) == {"solo": now}
        assert (closed(leader), ledger(leader).unaccounted) == ([], None)


async def test_a_pod_whose_claim_holds_other_gpus_has_an_event_and_is_counted(cluster):
    async with leading(cluster) as leader:
        pod(cluster, "solo", 2)
        await until(lambda: cluster.allocated("solo"))
        planned = ", ".join(map(str, held(leader)["solo"]))
        allocate(cluster, "solo", "gpu-5", "gpu-6")
        await until(lambda: cluster.events("ClaimDiffers"))
        (event,) = cluster.events("ClaimDiffers")
        assert event["message"].startswith(
            f"Its claim holds GPUs 5, 6 of node gpu-0, and {planned} were planned"
        )
        assert event["involvedObject"]["name"] == "solo"
        await until(lambda: leader.report().claim_problems == {"ClaimDiffers": 1})
        cluster.delete("solo")
        await until(lambda: leader.report().claim_problems == {})
    assert len(cluster.events("ClaimDiffers")) == 1


async def test_the_gang_of_a_claim_with_other_gpus_says_so_until_they_are_the_planned_ones(cluster):
    async with leading(cluster) as leader:
        for i in range(2):
            pod(cluster, f"bert-{i}", 1, gang="bert")
        await until(lambda: cluster.allocated("bert-0", "bert-1"))
        planned = {name: gpus[0] for name, gpus in held(leader).items()}
        for name, gpu in planned.items():
            allocate(cluster, name, f"gpu-{gpu}")
        cluster.bind(*planned)
        await until(lambda: cluster.phase() == "Placed")
        assert condition(cluster) is None

        publish(cluster, range(7, -1, -1))
        await until(lambda: condition(cluster))
        assert condition(cluster)["status"] == "False"
        first, second = (
            f"{7 - gpu} of gpu-0 instead of {gpu} (pod {name})"
            for name, gpu in sorted(planned.items())
        )
        assert condition(cluster)["message"] == f"other GPUs than planned: {first}, {second}"
        (node,) = cluster.the_gang()["status"]["held"]
        assert node["gpus"] == sorted(7 - gpu for gpu in planned.values())

        publish(cluster)
        await until(lambda: condition(cluster)["status"] == "True")


def condition(cluster, kind="GPUsAsPlanned"):
    conditions = cluster.the_gang()["status"]["conditions"]
    return next((each for each in conditions if each["type"] == kind), None)


@pytest.mark.parametrize(
    ("seconds", "is_reported"),
    [pytest.param(59, False, id="59 s"), pytest.param(61, True, id="61 s")],
)
async def test_a_gang_whose_pod_is_not_prepared_for_a_minute_has_an_event(
    cluster, seconds, is_reported
):
    clock = Clock()
    async with leading(cluster, clock=clock) as leader:
        for i in range(2):
            pod(cluster, f"bert-{i}", 1, gang="bert")
        await until(lambda: cluster.allocated("bert-0", "bert-1"))
        for i in range(2):
            allocate(cluster, f"bert-{i}", f"gpu-{held(leader)[f'bert-{i}'][0]}")
        cluster.bind("bert-0", "bert-1")
        since, clock.now = clock.now, clock.now + seconds
        report_prepared(cluster, "bert-1", "False", since)
        # This problem is reported in the same pass or in a later one.
        claim = cluster.get(claim_path("bert-0"))
        claim["status"]["reservedFor"].append({"resource": "pods", "name": "x", "uid": "x"})
        cluster.put(claim_path("bert-0"), claim)
        await until(lambda: len(cluster.events("ClaimShared")) == 2)
        if is_reported:
            await until(lambda: len(cluster.events("ClaimNotPrepared")) == 2)
            assert leader.report().claim_problems["ClaimNotPrepared"] == 1
        events = cluster.events("ClaimNotPrepared")
    names = {event["involvedObject"]["name"] for event in events}
    assert names == ({"bert", "bert-1"} if is_reported else set())


async def place_gang(cluster, leader):
    for i in range(2):
        pod(cluster, f"bert-{i}", 1, gang="bert")
    await until(lambda: cluster.allocated("bert-0", "bert-1"))
    for i in range(2):
        allocate(cluster, f"bert-{i}", f"gpu-{held(leader)[f'bert-{i}'][0]}")
    cluster.bind("bert-0", "bert-1")
    await until(lambda: cluster.phase() == "Placed")


async def test_the_error_of_the_driver_is_in_the_events_and_in_the_condition(cluster):
    clock, error = Clock(), "NodePrepareResources failed: gpu-3 is already allocated"
    failed_to_prepare(cluster, "bert-1", error)
    async with leading(cluster, clock=clock) as leader:
        await place_gang(cluster, leader)
        report_prepared(cluster, "bert-1", "False", clock.now)
        clock.now += 61
        await until(lambda: len(cluster.events("ClaimNotPrepared")) == 2)
        for event in cluster.events("ClaimNotPrepared"):
            assert event["message"].endswith(f'; its kubelet says: "{error}"')
        base = "not prepared for more than a minute: bert-1 (node gpu-0)"
        says = f'{base}; the kubelet says of bert-1: "{{}}"'.format
        await until(lambda: condition(cluster, "PodsPrepared"))
        await until(lambda: condition(cluster, "PodsPrepared")["message"] == says(error))

        # A new text is no new problem.
        failed_to_prepare(cluster, "bert-1", "driver not registered", minute=6)
        clock.now += 61
        await until(
            lambda: condition(cluster, "PodsPrepared")["message"] == says("driver not registered")
        )
        created = [body for method, _, body in cluster.writes if method == "POST"]
        assert sum(body.get("reason") == "ClaimNotPrepared" for body in created) == 2


async def test_a_problem_is_reported_once_the_events_of_the_pod_are_read(cluster, monkeypatch):
    monkeypatch.setattr("scorer.cache.claims.paced_reads._READS_MAX", 1)
    clock, names = Clock(), ("bert-0", "bert-1")
    for name in names:
        failed_to_prepare(cluster, name, f"error of {name}")
    async with leading(cluster, clock=clock) as leader:
        await place_gang(cluster, leader)
        for name in names:
            report_prepared(cluster, name, "False", clock.now)
        pods = leader.context.informers.state.pod
        await until(lambda: all(pods(("team", name)).unprepared_since for name in names))
        clock.now += 61
        await until(lambda: len(cluster.events("ClaimNotPrepared")) == 4)
    assert all("error of bert-" in one["message"] for one in cluster.events("ClaimNotPrepared"))


async def test_a_problem_is_reported_without_the_error_where_events_cannot_be_read(cluster):
    clock = Clock()
    async with leading(cluster, clock=clock) as leader:
        await place_gang(cluster, leader)
        cluster.outcomes["GET", "/api/v1/namespaces/team/events"].append((403, "no"))
        report_prepared(cluster, "bert-1", "False", clock.now)
        clock.now += 61
        await until(lambda: len(cluster.events("ClaimNotPrepared")) == 2)
        assert "an Event FailedPrepare" in cluster.events("ClaimNotPrepared")[0]["message"]
        await until(lambda: condition(cluster, "PodsPrepared"))


def failed_to_prepare(cluster, name, message, minute=5):
    """Create an Event as a kubelet does."""
    body = {
        "metadata": {},
        "involvedObject": {"kind": "Pod", "name": name, "namespace": "team", "uid": name},
        "reason": "FailedPrepareDynamicResources",
        "source": {"component": "kubelet", "host": "gpu-0"},
        "lastTimestamp": f"2026-01-02T03:0{minute}:00Z",
        "message": message,
    }
    cluster.put(f"/api/v1/namespaces/team/events/{name}.{minute}", body)


async def test_a_gang_whose_pod_is_not_prepared_says_so_until_it_is(cluster):
    clock = Clock()
    async with leading(cluster, clock=clock) as leader:
        await place_gang(cluster, leader)
        report_prepared(cluster, "bert-1", "False", clock.now)
        await until(lambda: leader.context.informers.state.pod(("team", "bert-1")).unprepared_since)
        assert condition(cluster, "PodsPrepared") is None
        # No pod changes any more.
        clock.now += 61
        await until(lambda: condition(cluster, "PodsPrepared"))
        found = condition(cluster, "PodsPrepared")
        assert (found["status"], found["reason"]) == ("False", "ClaimNotPrepared")
        assert found["message"] == "not prepared for more than a minute: bert-1 (node gpu-0)"

        report_prepared(cluster, "bert-1", "True", clock.now)
        await until(lambda: condition(cluster, "PodsPrepared")["status"] == "True")


def report_prepared(cluster, name, status, since):
    """Write the condition of a kubelet about what a pod needs before its containers start."""
    condition = {
        "type": "PodReadyToStartContainers",
        "status": status,
        "lastTransitionTime": rfc3339(since),
    }
    status = {"phase": "Pending", "conditions": [condition]}
    cluster.put(f"/api/v1/namespaces/team/pods/{name}", {**cluster[name], "status": status})


async def test_a_claim_that_another_pod_uses_has_an_event(cluster):
    async with leading(cluster):
        pod(cluster, "solo", 1)
        await until(lambda: cluster.allocated("solo"))
        allocate(cluster, "solo", "gpu-0")
        claim = cluster.get(claim_path("solo"))
        claim["status"]["reservedFor"].append({"resource": "pods", "name": "x", "uid": "x"})
        cluster.put(claim_path("solo"), claim)
        await until(lambda: cluster.events("ClaimShared"))


async def test_a_new_leader_books_the_same(cluster):
    async with leading(cluster):
        pod(cluster, "solo", 2)
        await until(lambda: cluster.allocated("solo"))
        allocate(cluster, "solo", "gpu-5", "gpu-6")
    async with leading(cluster, term=8) as leader:
        assert held(leader) == {"solo": [5, 6]}
        assert closed(leader) == []


async def test_the_gpus_of_a_claim_are_free_once_its_pod_and_it_are_gone(cluster):
    async with leading(cluster) as leader:
        pod(cluster, "solo", 8)
        await until(lambda: cluster.allocated("solo"))
        allocate(cluster, "solo", *(f"gpu-{i}" for i in range(8)))
        cluster.delete("solo")
        # The claim holds its devices until it is deleted, too.
        await until(lambda: closed(leader) == list(range(8)))
        cluster.remove(claim_path("solo"))
        await until(lambda: closed(leader) == [])


async def test_a_device_that_two_claims_hold_leaves_the_node_unaccounted(cluster):
    async with leading(cluster) as leader:
        pod(cluster, "solo", 2)
        await until(lambda: cluster.allocated("solo"))
        allocate(cluster, "solo", "gpu-5", "gpu-6")
        cluster.put(FOREIGN, a_claim("gpu-6", node="gpu-0", name="foreign"))
        await until(
            lambda: "several resource claims hold device gpu-6" in str(ledger(leader).unaccounted)
        )


async def test_a_claim_for_a_device_that_is_no_gpu_leaves_the_node_unaccounted(cluster):
    async with leading(cluster) as leader:
        pod(cluster, "solo", 1)
        await until(lambda: cluster.allocated("solo"))
        allocate(cluster, "solo", "gpu-0-mig-9-0-4")
        cluster.bind("solo")
        await until(lambda: "no GPU of its node" in str(ledger(leader).unaccounted))


@pytest.mark.parametrize(
    ("tolerations", "is_fenced"),
    [
        pytest.param([], False, id="without toleration"),
        pytest.param([{"key": "linkwise.dev/placed", "operator": "Exists"}], True, id="tolerated"),
        pytest.param([{"operator": "Exists"}], True, id="all taints tolerated"),
    ],
)
async def test_a_scheduler_that_ignores_the_rule_leaves_the_node_unfenced(
    cluster, tolerations, is_fenced
):
    async with leading(cluster) as leader:
        await until(lambda: leader.context.unfenced() == {})
        claim = a_claim("gpu-1", node="gpu-0", name="foreign", tolerations=tolerations)
        claim["status"]["allocation"]["allocationTimestamp"] = "2026-01-02T04:00:00Z"
        cluster.put(FOREIGN, claim)
        await until(lambda: closed(leader) == [1])
        assert (leader.context.unfenced() == {}) is is_fenced
