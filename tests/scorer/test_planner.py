"""A leader, from a complete gang to written pods."""

import json
from datetime import UTC, datetime

import pytest
import pytest_asyncio
from msgspec import to_builtins
from support.builders import a_held_pod
from support.servers.fake_cluster import FENCED
from support.servers.leader_harness import Clock, Cluster, leading
from support.waiting import until

from linkwise.cluster import keys
from linkwise.cluster.gang import GangKey
from linkwise.planning.gang.crd import Phase, name_of
from linkwise.planning.gang.crd_status import status_of
from linkwise.runtime.process.clock import wall

WAITING = "WaitingForGPUs"
RESERVED = "reserved for the unit that waited longest"
RECORD = {
    keys.ALLOCATION: '{"v": 1, "node": "gpu-0", "gpus": [{"i": 0}], "plan": "6-1"}',
    keys.TERM: "6",
}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


@pytest_asyncio.fixture
async def cluster():
    async with Cluster() as running:
        running.node()
        yield running


def gpus(cluster, *names):
    return [gpu["i"] for name in names for gpu in cluster.record(name)["gpus"]]


# ---- Order.


async def test_an_older_unit_gets_capacity_that_is_freed_when_another_one_comes(cluster):
    async with leading(cluster):
        cluster.pod("busy", 8, created="2026-01-01T00:00:00Z")
        await until(lambda: cluster.allocated("busy"))
        cluster.pod("older", 5, created="2026-01-02T00:00:00Z")
        await until(lambda: cluster.events(WAITING))
        cluster.delete("busy")
        cluster.gang(workers=4, gpus=1, created="2026-01-03T00:00:00Z")
        await until(lambda: cluster.record("older") or cluster.record("bert-0"))
        await until(lambda: cluster.record("older"))


# ---- All or nothing.


async def test_the_plan_of_a_gang_is_recorded_before_its_pods_are_written(cluster):
    async with leading(cluster):
        cluster.gang()
        await until(lambda: cluster.allocated("bert-0", "bert-1"))

    writes = [
        (method, path)
        for method, path, _ in cluster.writes
        if "/events" not in path and not path.endswith("/status")
    ]
    assert writes[0] == ("POST", "/apis/linkwise.dev/v1alpha1/namespaces/team/gangs")
    assert sorted(writes[1:3]) == [
        ("PATCH", f"/api/v1/namespaces/team/pods/bert-{i}") for i in (0, 1)
    ]
    plan = cluster.the_gang()["spec"]["plan"]
    assert {member["pod"]: member["gpus"] for member in plan["members"]} == {
        f"bert-{i}": gpus(cluster, f"bert-{i}") for i in (0, 1)
    }


async def test_every_pod_has_its_gpus_node_and_term(cluster):
    async with leading(cluster, term=42):
        cluster.gang()
        await until(lambda: cluster.allocated("bert-0", "bert-1"))

    for name in ("bert-0", "bert-1"):
        pod = cluster[name]
        terms = pod["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
        assert pod["metadata"]["annotations"][keys.TERM] == "42"
        assert pod["spec"]["schedulingGates"] == []
        assert [term["matchFields"][0]["values"] for term in terms] == [["gpu-0"]]
        assert cluster.record(name)["plan"] == "42-1"
    assert sorted(gpus(cluster, "bert-0", "bert-1")) == list(range(8))


async def test_the_cdi_devices_of_a_gang_are_written_by_policy(cluster):
    cluster.policy("containers: {gpuInjection: nri}")
    async with leading(cluster):
        cluster.gang()
        await until(lambda: cluster.allocated("bert-0", "bert-1"))

    for name in ("bert-0", "bert-1"):
        devices = [f"nvidia.com/gpu={i}" for i in gpus(cluster, name)]
        key = f"{keys.NVIDIA_CDI_CONTAINER}c0"
        assert cluster[name]["metadata"]["annotations"][key] == ",".join(devices)


def offer(cluster, mode, **amounts):
    """Add a node of two GPUs that is in this mode."""
    status = {"allocatable": {"cpu": "96", "memory": "768Gi", "pods": "110", **amounts}}
    labels = {keys.NODE_MODE: mode, keys.GFD_REPLICAS: "2"}
    cluster.put(f"/api/v1/nodes/{mode}", {"metadata": {"labels": labels}, "status": status})


def hold(cluster, name, **limits):
    """Create a gated pod with these limits."""
    raw = a_held_pod(0, name)
    raw["spec"]["containers"][0]["resources"] = {"limits": limits}
    cluster.put(f"/api/v1/namespaces/team/pods/{name}", raw)


async def test_a_share_has_its_card_and_its_isolation(cluster):
    offer(cluster, "cgpu", **{keys.GPU_MEM: "30", keys.GPU_COUNT: "2"})
    async with leading(cluster):
        hold(cluster, "share", **{keys.GPU_MEM: "4"})
        await until(lambda: cluster.allocated("share"))

    annotations = cluster["share"]["metadata"]["annotations"]
    assert annotations[keys.MEM_DEV] == "15"
    assert annotations[keys.ISOLATION] == "cgpu"


async def test_a_share_with_too_many_cards_waits_until_its_label_is_fixed(
    cluster,
):
    offer(cluster, "cgpu", **{keys.GPU_MEM: "60", keys.GPU_COUNT: "4"})
    hold(cluster, "bad", **{keys.GPU_MEM: "1"})
    cluster["bad"]["metadata"]["labels"] = {keys.GPU_COUNT: "4"}
    async with leading(cluster):
        hold(cluster, "good", **{keys.GPU_MEM: "1"})
        await until(lambda: cluster.allocated("good"))
        assert not cluster.patches("bad")
        cluster.put("/api/v1/namespaces/team/pods/bad", {**cluster["bad"], "metadata": {}})
        await until(lambda: cluster.allocated("bad"))


async def test_replicas_of_gated_pods_use_different_gpus(cluster):
    offer(cluster, "timeslice", **{keys.NVIDIA_GPU_SHARED: "4"})
    async with leading(cluster):
        for name in ("first", "second"):
            hold(cluster, name, **{keys.NVIDIA_GPU_SHARED: "1"})
        await until(lambda: cluster.allocated("first", "second"))

    assert sorted(gpus(cluster, "first", "second")) == [0, 1]
    assert cluster["first"]["metadata"]["annotations"][keys.ISOLATION] == "none"


async def test_no_pod_of_an_incomplete_gang_is_written(cluster):
    async with leading(cluster):
        cluster.pod("bert-0", gang="bert")
        await until(lambda: cluster.phase() == "Assembling")
        assert cluster.patches("bert-0") == []
        cluster.pod("bert-1", gang="bert")
        await until(lambda: cluster.allocated("bert-0", "bert-1"))


async def test_written_gpus_count_as_used_before_the_watch_shows_them(cluster):
    async with leading(cluster):
        cluster.paused = True
        cluster.gang()
        await until(lambda: cluster.allocated("bert-0", "bert-1"))
        cluster.pod("late", 1)
        await until(lambda: cluster.events(WAITING))
        cluster.resume()
        cluster.pod("later", 1)
        await until(lambda: len(cluster.events(WAITING)) > 1)

    assert cluster.patches("late") == cluster.patches("later") == []
    assert len(cluster.patches("bert-0")) == 1


async def test_a_refused_pod_is_placed_when_capacity_is_freed(cluster):
    async with leading(cluster):
        cluster.pod("first", 8)
        await until(lambda: cluster.allocated("first"))
        cluster.pod("second", 8)
        await until(lambda: cluster.events(WAITING))
        cluster.delete("first")
        await until(lambda: cluster.allocated("second"))


async def test_gangs_are_committed_one_after_the_other(cluster):
    cluster.node("gpu-1")
    async with leading(cluster):
        for name in ("one", "two"):
            cluster.gang(name, owner={"kind": "MPIJob", "name": name, "uid": name})
        await until(lambda: cluster.allocated("one-0", "one-1", "two-0", "two-1"))

    patched = [path[-5:-2] for method, path, _ in cluster.writes if "pods/" in path]
    assert patched in (["one", "one", "two", "two"], ["two", "two", "one", "one"])


# ---- Failed writes.


@pytest.mark.parametrize(
    "refusal",
    [
        pytest.param((422, "the test failed"), id="the pod has changed"),
        pytest.param((404, "it is not there"), id="the pod is gone"),
        pytest.param((500, "broken"), id="the server failed"),
    ],
)
async def test_a_pod_whose_patch_is_refused_is_planned_again(cluster, refusal):
    cluster.fail("PATCH", "alone", refusal)
    async with leading(cluster):
        cluster.pod("alone", 8)
        await until(lambda: cluster.allocated("alone"))

    assert len(cluster.patches("alone")) == 2
    assert cluster.record("alone")["plan"] == "7-2"


async def test_the_planned_gpus_of_a_deleted_pod_are_free_for_others(cluster):
    cluster.fail("PATCH", "gone", (404, "it is not there"))
    async with leading(cluster):
        cluster.pod("gone", 8)
        await until(lambda: cluster.patches("gone"))
        cluster.delete("gone")
        cluster.pod("other", 8)
        await until(lambda: cluster.allocated("other"))


async def test_a_refused_member_is_retried_by_the_same_plan(cluster):
    cluster.fail("PATCH", "bert-1", (422, "the test failed"))
    async with leading(cluster):
        cluster.gang()
        await until(lambda: cluster.allocated("bert-0", "bert-1"))

    assert cluster.record("bert-1")["plan"] == cluster.record("bert-0")["plan"] == "7-1"
    assert len([1 for method, path, _ in cluster.writes if path.endswith("/gangs")]) == 1


async def test_a_refused_write_is_not_retried_before_its_backoff_ends(cluster):
    cluster.fail("PATCH", "cursed", *[(403, "no")] * 100)
    async with leading(cluster, commit_retry=3600):
        cluster.pod("cursed", 1)
        await until(lambda: cluster.patches("cursed"))
        for i in range(5):
            cluster.pod(f"other-{i}")
            await until(lambda name=f"other-{i}": cluster.allocated(name))

    assert len(cluster.patches("cursed")) == 1


async def test_a_lost_response_does_not_repeat_the_write(cluster):
    cluster.fail("PATCH", "alone", "unanswered")
    async with leading(cluster):
        cluster.paused = True
        cluster.pod("alone", 8)
        await until(lambda: cluster.reads)
        cluster.resume()
        cluster.pod("late", 8)
        await until(lambda: cluster.events(WAITING))

    assert len(cluster.patches("alone")) == 1
    assert cluster.patches("late") == []


async def test_a_lost_request_is_written_again(cluster):
    cluster.fail("PATCH", "alone", "lost")
    async with leading(cluster):
        cluster.pod("alone", 8)
        await until(lambda: cluster.allocated("alone"))

    assert len(cluster.patches("alone")) == 2
    assert cluster.reads == ["/api/v1/namespaces/team/pods/alone"]


async def test_gpus_stay_assumed_until_a_read_shows_the_outcome_of_a_write(cluster):
    cluster.fail("PATCH", "alone", "unanswered")
    cluster.fail("GET", "alone", (503, "starting"), "lost", "lost")
    async with leading(cluster):
        cluster.paused = True
        cluster.pod("alone", 8)
        await until(lambda: len(cluster.reads) > 3)
        cluster.pod("late", 8)
        await until(lambda: cluster.events(WAITING))

    assert len(cluster.patches("alone")) == 1
    assert cluster.patches("late") == []


async def test_a_pod_that_was_deleted_during_its_write_keeps_no_gpus(cluster):
    cluster.fail("PATCH", "alone", "lost")
    async with leading(cluster):
        cluster.fail("GET", "alone", (404, "it is not there"))
        cluster.pod("alone", 8)
        await until(lambda: cluster.reads)
        cluster.delete("alone")
        cluster.pod("other", 8)
        await until(lambda: cluster.allocated("other"))


async def test_a_new_pod_of_the_same_name_does_not_inherit_an_allocation(cluster):
    cluster.fail("PATCH", "alone", "lost")
    async with leading(cluster):
        cluster.paused = True
        cluster.pod("alone", 8)
        await until(lambda: cluster.patches("alone"))
        cluster.pod("alone", 2, uid="again")
        await until(lambda: cluster.reads)
        cluster.resume()
        await until(lambda: cluster.allocated("alone"))

    assert len(gpus(cluster, "alone")) == 2


async def test_no_pod_is_written_while_the_plan_cannot_be_recorded(cluster):
    path = "/apis/linkwise.dev/v1alpha1/namespaces/team/gangs"
    cluster.outcomes["POST", path] += [(403, "no"), (500, "broken"), "lost"]
    async with leading(cluster):
        cluster.gang()
        await until(lambda: cluster.allocated("bert-0", "bert-1"))

    kinds = [path.rsplit("/", 2)[-2:] for _, path, _ in cluster.writes if "/events" not in path]
    assert kinds[:3] == [["team", "gangs"]] * 3
    assert cluster.record("bert-0")["plan"] == cluster.the_gang()["spec"]["plan"]["id"]


async def test_a_fenced_leader_stops_writing(cluster):
    cluster.fail("PATCH", "alone", FENCED)
    async with leading(cluster) as leader:
        cluster.pod("alone", 8)
        await until(leader.task.done)
        assert not leader.context

    assert len(cluster.patches("alone")) == 1
    assert cluster.record("alone") is None


# ---- Sizes of gangs.


def a_job(uid="job"):
    container = {"name": "pytorch", "resources": {"limits": {keys.GPU_WHOLE: 4}}}
    replicas = {"replicas": 2, "template": {"spec": {"containers": [container]}}}
    return {"metadata": {"uid": uid}, "spec": {"pytorchReplicaSpecs": {"Worker": replicas}}}


OWNER = "/apis/kubeflow.org/v1/namespaces/team/pytorchjobs/bert"


async def test_an_owner_is_read_once_for_the_size_until_there_are_more_members(cluster):
    cluster.put(OWNER, a_job())
    async with leading(cluster):
        cluster.gang(size=None)
        await until(lambda: cluster.allocated("bert-0", "bert-1"))
        assert cluster.reads.count(OWNER) == 1
        # A member that the owner did not declare: it may declare more by now.
        cluster.pod("bert-2", gang="bert", size=None)
        await until(lambda: cluster.reads.count(OWNER) > 1)

    assert cluster.the_gang()["spec"]["size"] == 2


async def test_an_owner_that_cannot_be_read_is_read_again(cluster):
    cluster.put(OWNER, a_job())
    cluster.outcomes["GET", OWNER] += [(503, "starting"), (403, "no"), "lost"]
    async with leading(cluster):
        cluster.gang(size=None)
        await until(lambda: cluster.allocated("bert-0", "bert-1"))

    assert cluster.reads == [OWNER] * 4


async def test_the_size_of_another_owner_of_the_same_name_is_ignored(cluster):
    cluster.put(OWNER, a_job("other"))
    async with leading(cluster):
        cluster.gang(size=None)
        await until(lambda: cluster.phase() == "Assembling")

    assert "number of its members is unknown" in cluster.the_gang()["status"]["reason"]


async def test_owners_of_unknown_kinds_are_not_read(cluster):
    async with leading(cluster):
        cluster.gang(owner={"apiVersion": "v1", "kind": "ReplicaSet", "name": "x", "uid": "x"})
        await until(lambda: cluster.allocated("bert-0", "bert-1"))

    assert cluster.reads == []


# ---- Gangs by the kind of their owner.

TORCH = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "bert", "uid": "job"}
BY_OWNER = {keys.GANG: "bert", keys.GANG_KIND: "PyTorchJob"}


def a_torch_job(workers=4, **spec):
    job = a_job()
    job["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] = workers
    return {**job, "spec": job["spec"] | spec}


def evictions(cluster):
    return [path for _, path, _ in cluster.writes if path.endswith("/eviction")]


def placed_before(cluster, name, gpus):
    """Create a pod that was placed by itself while the policy did not have its kind."""
    record = {"v": 1, "node": "gpu-0", "gpus": [{"i": i} for i in gpus], "plan": "6-1"}
    annotations = {keys.ALLOCATION: json.dumps(record), keys.TERM: "6"}
    placed = {"gates": (), "nodeName": "gpu-0", "phase": "Running"}
    cluster.pod(name, len(gpus), owner=TORCH, annotations=annotations, **placed)


async def test_an_upgrade_leaves_a_running_job_alone_and_places_its_replacements(cluster):
    cluster.put(OWNER, a_torch_job())
    placed_before(cluster, "bert-0", (0, 1))
    placed_before(cluster, "bert-1", (2, 3))
    # It waited for GPUs by itself when the policy changed.
    cluster.pod("bert-2", 2, owner=TORCH)
    async with leading(cluster):
        await until(lambda: cluster.record("bert-2"))
        cluster.pod("bert-3", 2, owner=TORCH, annotations=BY_OWNER)
        await until(lambda: cluster.record("bert-3"))
        cluster.bind("bert-2", "bert-3")
        await until(lambda: cluster.phase() == "Placed")

    assert gpus(cluster, "bert-0", "bert-1") == [0, 1, 2, 3]
    assert evictions(cluster) == []
    assert cluster.the_gang()["status"]["members"] == "1/1"


async def test_going_back_leaves_a_gang_of_an_owner_that_gets_unmarked_pods_whole(cluster):
    cluster.put(OWNER, a_torch_job(2))
    cluster.pod("bert-0", 4, owner=TORCH, annotations=BY_OWNER)
    async with leading(cluster):
        await until(lambda: cluster.phase() == "Assembling")
        cluster.pod("bert-1", 4, owner=TORCH)
        await until(lambda: cluster.record("bert-0") and cluster.record("bert-1"))

    assert evictions(cluster) == []


async def test_an_elastic_job_starts_with_its_minimum_and_grows(cluster):
    cluster.put(OWNER, a_torch_job(elasticPolicy={"minReplicas": 2}))
    cluster.pod("other", 3, created="2025-01-01T00:00:00Z")
    async with leading(cluster):
        await until(lambda: cluster.record("other"))
        for i in range(4):
            cluster.pod(f"bert-{i}", 2, owner=TORCH, annotations=BY_OWNER)
        await until(lambda: cluster.allocated("bert-0", "bert-1"))
        cluster.delete("other")
        await until(lambda: cluster.allocated("bert-2", "bert-3"))

    assert sorted(gpus(cluster, *(f"bert-{i}" for i in range(4)))) == [*range(8)]
    assert cluster.the_gang()["spec"]["size"] == 2


# ---- Plans of the last leader.


async def test_an_interrupted_commit_is_resumed_by_its_plan(cluster):
    cluster.interrupted_gang()
    async with leading(cluster):
        await until(lambda: cluster.allocated("bert-1"))

    assert cluster.record("bert-1")["plan"] == "6-3"
    assert gpus(cluster, "bert-1") == [0, 1, 2, 3]
    assert cluster["bert-1"]["metadata"]["annotations"][keys.TERM] == "7"
    assert not [path for _, path, _ in cluster.writes if path.endswith("/gangs")]


async def test_the_remaining_gpus_of_an_interrupted_plan_are_not_given_to_others(cluster):
    cluster.interrupted_gang()
    # It would be planned first: it has a higher priority, and has waited longer.
    cluster.pod("urgent", 4, priority=1000, created="2025-01-01T00:00:00Z")
    async with leading(cluster):
        await until(lambda: cluster.allocated("bert-1") and cluster.events(WAITING))

    assert gpus(cluster, "bert-1") == [0, 1, 2, 3]
    assert cluster.record("urgent") is None


@pytest.mark.parametrize(
    ("left", "expected"),
    [
        pytest.param({"uid": "before"}, [4, 5, 6, 7], id="of another pod"),
        pytest.param({"gpus": ((0, 1, 2, 3), (3, 4, 5, 6))}, [4, 5, 6, 7], id="in use"),
        pytest.param({"gpus": ((0, 1, 2, 3), (8, 9, 10, 11))}, [4, 5, 6, 7], id="missing GPUs"),
    ],
)
async def test_the_remaining_pods_of_an_obsolete_plan_are_planned_again(cluster, left, expected):
    cluster.interrupted_gang(**{"gpus": ((0, 1, 2, 3), (4, 5, 6, 7)), **left})
    async with leading(cluster):
        await until(lambda: cluster.allocated("bert-1"))

    assert cluster.record("bert-1")["plan"] == "7-1"
    assert gpus(cluster, "bert-1") == expected
    assert cluster.the_gang()["spec"]["plan"]["id"] == "7-1"


# ---- Waiting times.


@pytest.mark.parametrize(
    ("minutes", "placed"),
    [
        pytest.param(9, True, id="too short"),
        pytest.param(11, False, id="long enough"),
    ],
)
async def test_freed_nodes_are_reserved_for_a_starving_pod(cluster, minutes, placed):
    clock = Clock()
    cluster.pod("small", 1)
    async with leading(cluster, clock=clock):
        await until(lambda: cluster.allocated("small"))
        cluster.pod("large", 8)
        await until(lambda: cluster.events(WAITING))
        clock.now += minutes * 60
        cluster.pod("next", 1, created="2026-01-01T00:00:01Z")
        await until(
            lambda: cluster.allocated("next") if placed else len(cluster.events(WAITING)) > 1
        )

    assert bool(cluster.record("next")) is placed


def a_recorded_gang(clock, name, *, minutes, assembled):
    """Return the path and body of a Gang with a status of the last leader, minutes ago."""
    at = datetime.fromtimestamp(clock.now - 60 * minutes, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    phase = Phase.WAITING if assembled else Phase.ASSEMBLING
    status = status_of(phase, members=(1, 1), now=at)
    key = GangKey("team", name, "job")
    gang = {"metadata": {}, "spec": {"gang": name, "link": "best"}, "status": to_builtins(status)}
    return f"/apis/linkwise.dev/v1alpha1/namespaces/team/gangs/{name_of(key)}", gang


@pytest.mark.parametrize(
    ("status", "created", "placed"),
    [
        pytest.param({"minutes": 11, "assembled": True}, "00:00", False, id="long enough"),
        pytest.param({"minutes": 9, "assembled": True}, "00:00", True, id="too short"),
        pytest.param({"minutes": 11, "assembled": False}, "00:00", True, id="it was incomplete"),
        pytest.param({"minutes": 11, "assembled": True}, "15:00", True, id="a member is new"),
        pytest.param(None, "00:00", True, id="without a Gang"),
    ],
)
async def test_a_new_leader_continues_the_waiting_time_of_a_gang(cluster, status, created, placed):
    clock = Clock()
    clock.now += 20 * 60
    if status:
        cluster.put(*a_recorded_gang(clock, "large", **status))
    cluster.pod("small", 1, gates=(), nodeName="gpu-0", annotations=RECORD)
    cluster.pod("large-0", 8, gang="large", size=1, created=f"2026-01-01T00:{created}Z")
    cluster.pod("next", 1, created="2026-01-01T00:20:00Z")
    async with leading(cluster, clock=clock) as leader:
        waiting = leader.context.planner.waiting
        await until(
            lambda: (
                cluster.allocated("next")
                if placed
                else any(RESERVED in why for _, why in waiting())
            )
        )

    assert bool(cluster.record("next")) is placed


# ---- Reservations.


async def starve(cluster, leader, clock):
    """Let a gang starve because a pod has most GPUs."""
    cluster.pod("holder", 7)
    await until(lambda: cluster.allocated("holder"))
    cluster.bind("holder")
    cluster.gang()
    waiting = leader.context.planner.waiting
    await until(lambda: any("free GPUs" in why for _, why in waiting()))
    clock.now += 3600


def is_reserved(leader):
    return any(RESERVED in why for _, why in leader.context.planner.waiting())


async def test_freed_gpus_go_to_the_starving_gang(cluster):
    clock = Clock()
    async with leading(cluster, clock=clock) as leader:
        await starve(cluster, leader, clock)
        cluster.delete("holder")
        await until(lambda: cluster.allocated("bert-0", "bert-1"))


async def test_the_reservation_of_a_deleted_gang_ends(cluster):
    clock = Clock()
    async with leading(cluster, clock=clock) as leader:
        await starve(cluster, leader, clock)
        cluster.pod("small", 1)
        await until(lambda: is_reserved(leader))
        cluster.delete("bert-0")
        cluster.delete("bert-1")
        await until(lambda: cluster.allocated("small"))


async def test_a_reservation_ends_after_its_time(cluster):
    cluster.policy("apiVersion: linkwise.dev/v1alpha1\nkind: Policy\ngangs: {ageingMinutes: 0}\n")
    async with leading(cluster, clock=wall, min_reservation=0.5) as leader:
        cluster.pod("holder", 7)
        await until(lambda: cluster.allocated("holder"))
        cluster.gang()
        cluster.pod("small", 1)
        await until(lambda: is_reserved(leader))
        await until(lambda: cluster.allocated("small"))


async def test_the_time_behind_gates_of_others_does_not_count(cluster):
    clock = Clock()
    async with leading(cluster, clock=clock) as leader:
        cluster.pod("large", 8, gates=(keys.GANG, "theirs"))
        waiting = leader.context.planner.waiting
        await until(lambda: any("theirs" in why for _, why in waiting()))
        clock.now += 3600
        cluster.pod("holder", 7)
        await until(lambda: cluster.allocated("holder"))
        cluster.pod("large", 8)
        await until(lambda: any("needs 8 GPUs" in why for _, why in waiting()))
        cluster.pod("small", 1, created="2026-01-01T00:00:01Z")
        await until(lambda: cluster.allocated("small"))
