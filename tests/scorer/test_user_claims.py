"""A leader allocates the claims that pods bring, or that are made from their templates."""

from contextlib import asynccontextmanager
from datetime import datetime

import pytest
import pytest_asyncio
from support.dra import a_device, a_slice
from support.servers.claims_cluster import SLICE, claims_cluster
from support.servers.leader_harness import Clock, leading
from support.servers.user_claims_cluster import (
    CLAIMS,
    CLASS,
    GPU,
    a_claim_spec,
    a_gpu_class,
    an_allocation,
    claim_path,
    devices,
    make_claim,
    name_claim,
    pod,
    reserved,
)
from support.waiting import PATIENCE, until

from linkwise.cluster import keys
from scorer.preemption.units import placed_in


@pytest_asyncio.fixture
async def cluster():
    async with claims_cluster() as running:
        running.put(CLASS, a_gpu_class())
        yield running


@asynccontextmanager
async def fenced(cluster, **timings):
    """Lead, and wait until the node has a fence that was written long ago."""
    clock = Clock()
    clock.now += 10 * 24 * 3600
    async with leading(cluster, clock=clock, **timings) as leader:
        await until(lambda: leader.context.unfenced() == {})
        yield leader


def ledger(leader):
    return leader.context.informers.state.ledger("gpu-0")


def closed(leader):
    return [i for i, card in enumerate(ledger(leader).node.cards) if card.claimed]


def planned(cluster, name):
    return [f"gpu-{gpu['i']}" for gpu in cluster.record(name)["gpus"]]


def gang(cluster, size=2, gpus=4, **options):
    for i in range(size):
        pod(cluster, f"bert-{i}", gpus, gang="bert", size=size)
        make_claim(cluster, f"bert-{i}", gpus=gpus, **options)


async def waits(cluster, text):
    await until(lambda: any(text in one["message"] for one in cluster.events()))


async def test_the_claims_of_a_gang_hold_the_gpus_of_its_records(cluster):
    async with fenced(cluster) as leader:
        gang(cluster)
        await until(lambda: cluster.allocated("bert-0", "bert-1"))
        await until(lambda: closed(leader) == [] and ledger(leader).free_mask == 0)

        for name in ("bert-0", "bert-1"):
            assert devices(cluster, name) == planned(cluster, name)
            claim = cluster.get(claim_path(name))
            assert claim["status"]["reservedFor"] == reserved(name)
            assert claim["metadata"]["finalizers"] == [keys.CLAIM_PROTECTION]
            assert claim["metadata"]["annotations"][keys.TERM] == "7"
            assert not cluster[name]["spec"].get("schedulingGates")
    both = [*devices(cluster, "bert-0"), *devices(cluster, "bert-1")]
    assert len(set(both)) == 8


async def test_every_claim_is_allocated_before_the_first_pod_is_patched(cluster):
    async with fenced(cluster):
        gang(cluster)
        await until(lambda: cluster.allocated("bert-0", "bert-1"))

    paths = [
        path for method, path, _ in cluster.writes if method == "PATCH" and "gangs" not in path
    ]
    first_pod = next(i for i, path in enumerate(paths) if "/pods/" in path)
    assert sum("resourceclaims" in path for path in paths[:first_pod]) == 4
    assert not any("resourceclaims" in path for path in paths[first_pod:])


async def test_a_gang_waits_until_all_claims_are_made(cluster):
    async with fenced(cluster):
        for i in range(2):
            pod(cluster, f"bert-{i}", 1, gang="bert")
        make_claim(cluster, "bert-0")
        await waits(cluster, "has not made claim 'gpus' of pod bert-1")
        assert devices(cluster, "bert-0") is None
        make_claim(cluster, "bert-1")
        await until(lambda: cluster.allocated("bert-0", "bert-1"))


async def test_a_single_pod_waits_until_its_claim_is_made(cluster):
    async with fenced(cluster):
        gang(cluster, size=2)
        pod(cluster, "solo", 1)
        await waits(cluster, "has not made claim 'gpus' of pod solo")
        assert cluster.record("solo") is None
        assert not cluster.patches("solo")
        make_claim(cluster, "solo")
        # Its GPUs are free once the gang is gone.
        for name in ("bert-0", "bert-1"):
            cluster.delete(name)
            cluster.remove(claim_path(name))
        await until(lambda: cluster.allocated("solo"))


@pytest.mark.parametrize(
    ("claim", "text"),
    [
        pytest.param(
            {"spec": a_claim_spec(2)},
            "asks for other devices than when the pod was created",
            id="the template was replaced",
        ),
        pytest.param(
            {"spec": a_claim_spec(1, adminAccess=True)},
            "is not evaluated by Linkwise: request 'gpu' has adminAccess",
            id="another claim",
        ),
        pytest.param({"owner": "other"}, "belongs to another pod", id="of another pod"),
        pytest.param(
            {"status": {"allocation": an_allocation("gpu-7"), "reservedFor": reserved("other")}},
            "another pod uses claim bert-1-gpus-x7k2p of pod bert-1",
            id="reserved for another pod",
        ),
    ],
)
async def test_of_a_gang_with_a_claim_that_cannot_be_allocated_no_claim_is_left(
    cluster, claim, text
):
    async with fenced(cluster, claim_check_interval=PATIENCE, commit_retry=PATIENCE):
        for i in range(2):
            pod(cluster, f"bert-{i}", 1, gang="bert")
        make_claim(cluster, "bert-0")
        make_claim(cluster, "bert-1", **claim)
        await waits(cluster, text)
        await until(lambda: devices(cluster, "bert-0") is None)

        assert not cluster.patches("bert-0")
        assert not cluster.patches("bert-1")
        assert cluster.get(claim_path("bert-1")).get("status") == claim.get("status", {})


async def test_a_class_that_selects_other_gpus_than_the_pod_was_planned_for_is_not_allocated(
    cluster,
):
    cluster.put(CLASS, a_gpu_class(f"device.attributes['{GPU}'].productName == 'A100'"))
    async with fenced(cluster, claim_check_interval=PATIENCE, commit_retry=PATIENCE):
        pod(cluster, "solo", 1)
        make_claim(cluster, "solo")
        await waits(cluster, "asks for other devices than when the pod was created")

    assert devices(cluster, "solo") is None


async def test_a_gang_gets_the_gpus_that_satisfy_the_selectors_of_its_template(cluster):
    selector = f"device.attributes['{GPU}'].uuid in ['GPU-1', 'GPU-4', 'GPU-5', 'GPU-6']"
    spec = a_claim_spec(2, selectors=[{"cel": {"expression": selector}}])
    async with fenced(cluster):
        for name in ("bert-0", "bert-1"):
            pod(cluster, name, 2, gang="bert", selectors=[selector])
            make_claim(cluster, name, spec)
        await until(lambda: cluster.allocated("bert-0", "bert-1"))

    both = [*devices(cluster, "bert-0"), *devices(cluster, "bert-1")]
    assert sorted(both) == ["gpu-1", "gpu-4", "gpu-5", "gpu-6"]


async def test_the_gpus_of_each_request_satisfy_its_constraint(cluster):
    """Those of the second request are equal; they are the first and the last one of the node."""
    roots = {f"gpu-{i}": f"pci{i}" for i in range(8)} | {"gpu-7": "pci0"}
    root = "resource.kubernetes.io/pcieRoot"
    cluster.put(
        SLICE, a_slice(*(a_device(i, **{root: roots[f"gpu-{i}"]}) for i in range(8)), node="gpu-0")
    )
    constraint = {"matchAttribute": root, "requests": ["b"]}
    devices_ = a_claim_spec(1)["devices"]
    (request,) = devices_["requests"]
    requests = [{**request, "name": "b"}, {**request, "name": "a"}]
    requests[0]["exactly"] = {**request["exactly"], "count": 2}
    spec = {"devices": {"requests": requests, "constraints": [constraint]}}
    entries = {"gpus/a": 1, "gpus/b": 2, "constraints": {"gpus": [constraint]}}
    async with fenced(cluster):
        for name in ("bert-0", "bert-1"):
            pod(cluster, name, 1, gang="bert", entries=entries)
        make_claim(cluster, "bert-0", spec)
        make_claim(cluster, "bert-1", spec)
        await waits(cluster, "1 of 2 workers fit now")

        cluster.delete("bert-1")
        pod(cluster, "bert-1", 1, gang="bert")
        make_claim(cluster, "bert-1")
        await until(lambda: cluster.allocated("bert-0", "bert-1"))

    allocation = cluster.get(claim_path("bert-0"))["status"]["allocation"]
    held = [(one["request"], one["device"]) for one in allocation["devices"]["results"]]
    assert sorted(held[:2]) == [("b", "gpu-0"), ("b", "gpu-7")]
    assert held[2][0] == "a"


async def test_a_claim_whose_constraints_are_others_than_those_of_the_template_waits(cluster):
    spec = a_claim_spec(2)
    spec["devices"]["constraints"] = [{"matchAttribute": f"{GPU}/productName"}]
    async with fenced(cluster, claim_check_interval=PATIENCE, commit_retry=PATIENCE):
        pod(cluster, "solo", 2)
        make_claim(cluster, "solo", spec)
        await waits(cluster, "asks for other devices than when the pod was created")

    assert devices(cluster, "solo") is None


BOTH = ("data", "model")


async def test_a_pod_with_two_claims_has_the_gpus_of_its_record_in_both(cluster):
    async with fenced(cluster) as leader:
        for name in ("bert-0", "bert-1"):
            pod(cluster, name, 2, gang="bert", references=BOTH)
            make_claim(cluster, name, gpus=2, reference="data")
        await waits(cluster, "has not made claim 'data' or 'model' of pod bert-0")
        for name in ("bert-0", "bert-1"):
            make_claim(cluster, name, gpus=2, reference="model")
        await until(lambda: cluster.allocated("bert-0", "bert-1"))
        await until(lambda: closed(leader) == [] and ledger(leader).free_mask == 0)

    for name in ("bert-0", "bert-1"):
        parts = [devices(cluster, name, reference) for reference in BOTH]
        assert [len(part) for part in parts] == [2, 2]
        assert parts[0] + parts[1] == planned(cluster, name)
        for reference in BOTH:
            claim = cluster.get(claim_path(name, reference))
            assert claim["status"]["reservedFor"] == reserved(name)


async def test_if_one_of_two_claims_is_refused_the_other_one_is_released(cluster):
    async with fenced(cluster, claim_check_interval=PATIENCE, commit_retry=PATIENCE):
        pod(cluster, "solo", 1, references=BOTH)
        make_claim(cluster, "solo", reference="data")
        make_claim(cluster, "solo", a_claim_spec(2), reference="model")
        await waits(cluster, "asks for other devices than when the pod was created")
        await until(lambda: devices(cluster, "solo", "data") is None)

        assert not cluster.patches("solo")


async def test_of_two_claims_the_one_that_lost_its_devices_gets_them_again(cluster):
    async with fenced(cluster):
        pod(cluster, "solo", 1, references=BOTH)
        for reference in BOTH:
            make_claim(cluster, "solo", reference=reference)
        await until(lambda: cluster.allocated("solo"))
        first, second = planned(cluster, "solo")
        cluster.mark_unschedulable("solo")
        name_claim(cluster, "solo", "data")
        make_claim(cluster, "solo", reference="model")
        await until(lambda: devices(cluster, "solo", "model") == [second])

    assert devices(cluster, "solo", "data") == [first]


async def test_devices_of_two_claims_that_an_earlier_leader_left_are_free_again(cluster):
    pod(cluster, "solo", 1, references=BOTH)
    for reference, held in zip(BOTH, ("gpu-0", "gpu-1"), strict=True):
        status = {"allocation": an_allocation(held), "reservedFor": reserved("solo")}
        make_claim(cluster, "solo", reference=reference, status=status)
    pod(cluster, "whole", 7)
    async with fenced(cluster) as leader:
        await until(lambda: cluster.allocated("solo"))
        await until(lambda: closed(leader) == [])

    parts = [devices(cluster, "solo", reference) for reference in BOTH]
    assert [device for part in parts for device in part] == planned(cluster, "solo")


async def test_a_pod_whose_selectors_no_gpu_satisfies_waits_with_the_reason(cluster):
    async with fenced(cluster):
        pod(cluster, "solo", 1, selectors=[f"device.attributes['{GPU}'].productName == 'Tesla T4'"])
        make_claim(cluster, "solo")
        await waits(cluster, "no GPU for which the selectors of the claim hold (1)")


async def test_without_the_right_the_reason_names_the_manifests(cluster):
    message = 'changing status.allocation requires resource="resourceclaims/binding"'
    cluster.refuse = lambda _, path, __: (422, message) if path.endswith("x7k2p/status") else None
    async with fenced(cluster):
        pod(cluster, "solo", 1)
        make_claim(cluster, "solo")
        await waits(cluster, "manifests/claim-templates")
        assert cluster.record("solo") is None


async def test_refused_pods_give_their_devices_back(cluster):
    cluster.fail("PATCH", "bert-1", (422, "no"))
    async with fenced(cluster, claim_check_interval=PATIENCE):
        gang(cluster, gpus=1)
        await until(lambda: cluster.allocated("bert-0"))
        await until(
            lambda: any(
                "status" in body and body["status"]["allocation"] is None
                for _, path, body in cluster.writes
                if path == f"{claim_path('bert-1')}/status"
            )
        )
        await until(lambda: cluster.allocated("bert-1"))
        assert devices(cluster, "bert-1") == planned(cluster, "bert-1")


async def test_devices_that_an_earlier_leader_left_are_free_again(cluster):
    for name, held in (("first", ["gpu-0", "gpu-1"]), ("second", ["gpu-2"])):
        pod(cluster, name, len(held))
        make_claim(
            cluster,
            name,
            gpus=len(held),
            status={"allocation": an_allocation(*held), "reservedFor": reserved(name)},
        )
    pod(cluster, "whole", 8)
    async with fenced(cluster) as leader:
        await until(lambda: cluster.allocated("first", "second"))
        await until(lambda: closed(leader) == [])

    for name in ("first", "second"):
        assert devices(cluster, name) == planned(cluster, name)


async def test_devices_of_a_gang_that_is_not_complete_are_free_for_others(cluster):
    pod(cluster, "bert-0", 8, gang="bert")
    status = {
        "allocation": an_allocation(*(f"gpu-{i}" for i in range(8))),
        "reservedFor": reserved("bert-0"),
    }
    make_claim(cluster, "bert-0", gpus=8, status=status)
    pod(cluster, "solo", 8)
    make_claim(cluster, "solo", gpus=8)
    async with fenced(cluster):
        await until(lambda: cluster.allocated("solo"))

    assert devices(cluster, "bert-0") is None


async def test_a_claim_of_which_the_scheduler_took_the_devices_gets_them_again(cluster):
    async with fenced(cluster):
        pod(cluster, "solo", 2)
        make_claim(cluster, "solo", gpus=2)
        await until(lambda: cluster.allocated("solo"))
        wanted = planned(cluster, "solo")
        cluster.mark_unschedulable("solo")
        make_claim(cluster, "solo", gpus=2)
        await until(lambda: devices(cluster, "solo") == wanted)


async def test_a_shared_claim_counts_for_its_pod_and_stays_held_after_it(cluster):
    async with fenced(cluster) as leader:
        pod(cluster, "solo", 2)
        make_claim(cluster, "solo", gpus=2)
        await until(lambda: cluster.allocated("solo"))
        held = sorted(gpu["i"] for gpu in cluster.record("solo")["gpus"])
        await until(lambda: closed(leader) == [])
        cluster.delete("solo")
        # Another pod of the namespace names the claim, which therefore stays.
        await until(lambda: closed(leader) == held)


def shared_claim(cluster, name="mine", gpus=1, status=None):
    """Create a claim that no pod controls."""
    path = f"{CLAIMS}/{name}"
    cluster.put(path, {"metadata": {}, "spec": a_claim_spec(gpus), "status": status or {}})
    return path


def use(cluster, path, *pods):
    """Reserve a claim for pods, as kube-scheduler does."""
    claim = cluster.get(path)
    users = [one for name in pods for one in reserved(name)]
    cluster.put(path, {**claim, "status": {**claim["status"], "reservedFor": users}})


def users_of(leader, claim):
    return leader.context.informers.claims.claims.items["team", claim].users


async def test_a_pod_has_its_gpus_by_the_claim_that_it_names(cluster):
    async with fenced(cluster) as leader:
        path = shared_claim(cluster, gpus=2)
        pod(cluster, "solo", 2, claim="mine")
        await until(lambda: cluster.allocated("solo"))
        await until(lambda: closed(leader) == [] and ledger(leader).free_mask.bit_count() == 6)

        status = cluster.get(path)["status"]
        results = status["allocation"]["devices"]["results"]
        assert [one["device"] for one in results] == planned(cluster, "solo")
        assert status["reservedFor"] == reserved("solo")


async def test_a_second_pod_that_names_the_claim_is_left_to_the_scheduler(cluster):
    async with fenced(cluster) as leader:
        path = shared_claim(cluster, gpus=2)
        pod(cluster, "first", 2, claim="mine")
        await until(lambda: cluster.allocated("first"))
        held = [gpu["i"] for gpu in cluster.record("first")["gpus"]]
        pod(cluster, "second", 2, claim="mine")
        await waits(cluster, "another pod uses claim mine of pod second")
        assert cluster["second"]["spec"]["schedulingGates"]
        cluster.bind("first")
        await until(lambda: not cluster["second"]["spec"].get("schedulingGates"))
        await until(lambda: cluster.events("ClaimLeftToScheduler"))

        (event,) = cluster.events("ClaimLeftToScheduler")
        assert event["message"].endswith("devices already, and the pod shares them")
        assert cluster.record("second") is None
        annotations = cluster["second"]["metadata"]["annotations"]
        assert annotations[keys.LEFT_TO_SCHEDULER].startswith("claim mine: it has its devices")
        # kube-scheduler reserves it for the second one, too; then the first one ends.
        use(cluster, path, "first", "second")
        await until(lambda: len(users_of(leader, "mine")) == 2)
        assert closed(leader) == []
        (unit,) = placed_in(leader.context.informers, 0.0, lambda _: None)
        assert unit.victim.protected == "another pod uses the claim of pod first, and so its GPUs"
        cluster.delete("first")
        use(cluster, path, "second")
        await until(lambda: closed(leader) == held)
        assert not cluster.events("ClaimShared")


async def test_of_pods_that_name_one_claim_only_the_oldest_is_planned(cluster):
    """The others would take, or preempt, GPUs for nothing."""
    async with fenced(cluster, commit_retry=PATIENCE):
        pod(cluster, "whole", 8)
        make_claim(cluster, "whole", gpus=8)
        await until(lambda: cluster.allocated("whole"))
        shared_claim(cluster, gpus=8)
        pod(cluster, "first", 8, claim="mine")
        pod(cluster, "second", 8, claim="mine")
        await waits(cluster, "pod first, which names claim mine, too, is planned before it")


async def test_the_first_pod_of_a_claim_goes_on_where_the_scheduler_gave_it_to_another_one_too(
    cluster,
):
    """A leader was killed between both its writes, and kube-scheduler bound a pod without gate."""
    users = [*reserved("first"), *reserved("other")]
    status = {"allocation": an_allocation("gpu-0"), "reservedFor": users}
    shared_claim(cluster, status=status)
    cluster.pod("other", 0, gates=(), nodeName="gpu-0")
    pod(cluster, "first", 1, claim="mine")
    async with fenced(cluster):
        await until(lambda: not cluster["first"]["spec"].get("schedulingGates"))

    assert cluster.record("first") is None


async def test_a_pod_that_names_the_claim_made_for_another_one_is_left_to_the_scheduler(cluster):
    async with fenced(cluster):
        pod(cluster, "solo", 1)
        make_claim(cluster, "solo")
        await until(lambda: cluster.allocated("solo"))
        cluster.bind("solo")
        pod(cluster, "guest", 1, claim=claim_path("solo").rpartition("/")[2])
        await until(lambda: not cluster["guest"]["spec"].get("schedulingGates"))


async def test_a_gang_whose_pods_name_one_claim_waits_with_the_reason(cluster):
    async with fenced(cluster, claim_check_interval=PATIENCE, commit_retry=PATIENCE):
        path = shared_claim(cluster)
        for i in range(2):
            pod(cluster, f"bert-{i}", 1, gang="bert", claim="mine")
        await waits(cluster, "pods bert-0 and bert-1 name claim mine: each needs its own")
        assert not cluster.get(path)["status"].get("reservedFor")

        assert not cluster.patches("bert-0")
        assert not cluster.patches("bert-1")


async def test_a_pod_that_is_left_to_the_scheduler_has_one_event_with_the_reason(cluster):
    why = "template x: request 'gpu' has adminAccess\n\x07"
    cluster.pod("left", 0, gates=(), annotations={keys.LEFT_TO_SCHEDULER: why + "x" * 5000})
    async with leading(cluster):
        await until(lambda: cluster.events("ClaimLeftToScheduler"))
        (event,) = cluster.events("ClaimLeftToScheduler")

    assert event["involvedObject"]["name"] == "left"
    assert "has adminAccess??xxx" in event["message"]
    assert len(event["message"]) < 500


@pytest.mark.parametrize(
    ("rules", "why"), [(None, "DeviceTaintRules"), ("v1", "is younger than 10 s")]
)
async def test_on_a_node_without_a_fence_nothing_is_allocated(cluster, rules, why):
    cluster.taint_rules, clock = rules, Clock()
    async with leading(cluster, clock=clock) as leader:
        await until(lambda: (leader.context.unfenced() == {}) == bool(rules))
        clock.now = datetime.fromisoformat("2026-01-02T03:04:10Z").timestamp()
        pod(cluster, "solo", 1)
        make_claim(cluster, "solo")
        await waits(cluster, "is not allocated while node gpu-0 has no fence: ")
        await waits(cluster, why)

    assert devices(cluster, "solo") is None
    assert not cluster.patches("solo")
