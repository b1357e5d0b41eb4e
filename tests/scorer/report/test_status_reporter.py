"""Reports on gangs, and their number."""

import asyncio

import pytest
import pytest_asyncio
from support.builders import a_held_pod, dgx1_v100, topology_map
from support.servers.leader_harness import Cluster, leading
from support.waiting import until

from linkwise.cluster import keys
from linkwise.cluster.gang import GangKey
from linkwise.cluster.nodes.topology_configmap import PublishedTopology
from linkwise.planning.gang.crd import GANGS, name_of
from scorer.report.gang_writer import GangWriter
from scorer.report.status_reporter import StatusReporter

GANG_PATH = "/apis/linkwise.dev/v1alpha1/namespaces/team/gangs"
OBJECT = f"{GANG_PATH}/{name_of(GangKey('team', 'bert', 'job'))}"
EVENTS = "/api/v1/namespaces/team/events"
OWNERS = "/apis/kubeflow.org/v1/namespaces/team/pytorchjobs"


def a_job(workers, **spec):
    """Return the owner of gang `bert`."""
    containers = [{"name": "main", "resources": {"limits": {keys.GPU_WHOLE: "4"}}}]
    template = {"spec": {"containers": containers}}
    roles = {"Worker": {"replicas": workers, "template": template}}
    return {"metadata": {"uid": "job"}, "spec": {"pytorchReplicaSpecs": roles, **spec}}


@pytest_asyncio.fixture
async def cluster():
    async with Cluster() as running:
        running.node()
        yield running


async def looked(cluster, name="late"):
    """Wait until a new pod has an event: all earlier pods were planned before it."""
    cluster.pod(name, 1, nodeSelector={"only": "nowhere"})
    await until(lambda: any(one["involvedObject"]["name"] == name for one in cluster.events()))


async def passed(cluster, name="sign"):
    """Wait until a pod that comes now is placed: all that came before was looked at."""
    cluster.node(f"node-of-{name}", 1, only=name)
    cluster.pod(name, 1, nodeSelector={"only": name})
    await until(lambda: cluster.allocated(name))


def phases(cluster):
    """Return phases and reasons in the order in which they were written."""
    return [
        (step[1]["value"]["phase"], step[1]["value"].get("reason"))
        for step in cluster.status_patches()
    ]


async def test_an_update_whose_write_raises_keeps_its_event(cluster, monkeypatch):
    monkeypatch.setattr(GangWriter, "write_status", raising(1, GangWriter.write_status))
    async with leading(cluster):
        cluster.gang(gpus=16)
        await until(lambda: cluster.phase() == "Waiting" and cluster.events("GangWaiting"))


async def test_a_gang_whose_report_raises_is_reported_again(cluster, monkeypatch):
    async with leading(cluster):
        cluster.gang()
        await until(lambda: cluster.allocated("bert-0", "bert-1"))
        cluster.bind("bert-0", "bert-1")
        await until(lambda: cluster.phase() == "Placed")
        await passed(cluster)
        failing = raising(1, StatusReporter.reconcile)
        monkeypatch.setattr(StatusReporter, "reconcile", failing)
        cluster.delete("bert-1")
        await until(lambda: cluster.the_gang()["status"]["members"] == "1/2")


def raising(times, method):
    """Return a method that raises the first times, and then is the given one."""
    faults = iter(range(times))

    def run(*args):
        if next(faults, None) is not None:
            raise RuntimeError("a fault of ours")
        return method(*args)

    return run


# ---- Waiting.


async def test_a_waiting_gang_has_its_reason_in_its_status_and_an_event_of_its_job(cluster):
    async with leading(cluster):
        cluster.gang(workers=2, gpus=8)
        await until(lambda: cluster.phase() == "Waiting" and cluster.events())

    gang = cluster.the_gang()
    assert gang["status"]["members"] == "2/2"
    assert "1 of 2 workers fit now" in gang["status"]["reason"]
    assert "plan" not in gang["spec"]
    assert gang["metadata"]["ownerReferences"][0]["uid"] == "job"
    (event,) = cluster.events("GangWaiting")
    assert (event["involvedObject"]["kind"], event["involvedObject"]["uid"]) == (
        "PyTorchJob",
        "job",
    )
    assert gang["status"]["reason"] in event["message"]
    assert event["firstTimestamp"] == "2026-01-01T00:01:00Z"
    assert event["reportingInstance"] == "scorer-0"


async def test_a_gang_with_more_members_than_are_placed_has_its_reason_in_its_status(cluster):
    async with leading(cluster):
        cluster.pod("bert-0", 1, gang="bert", size=5000)
        await until(lambda: cluster.phase() == "Assembling")
    assert "at most 4096 members" in cluster.the_gang()["status"]["reason"]


async def test_an_unchanged_reason_is_written_once(cluster):
    async with leading(cluster):
        cluster.gang(workers=2, gpus=16)
        await until(lambda: cluster.phase() == "Waiting" and cluster.events())
        before = phases(cluster)
        for name in "abc":
            await looked(cluster, name)

    assert phases(cluster) == before
    assert before[-1][0] == "Waiting"
    assert len(cluster.events("GangWaiting")) == len(before)


async def test_a_reason_that_changes_often_is_written_rarely(cluster):
    async with leading(cluster, report_interval=3600):
        cluster.pod("bert-0", gang="bert", size=9)
        await until(lambda: cluster.phase() == "Assembling" and cluster.events("GangWaiting"))
        for i in range(1, 5):
            cluster.pod(f"bert-{i}", gang="bert", size=9)
            await passed(cluster, f"sign-{i}")

    assert phases(cluster) == [("Assembling", "1 of 9 members")]
    assert len(cluster.events("GangWaiting")) == 1


async def test_a_new_reason_to_wait_changes_the_status_without_an_event(cluster):
    async with leading(cluster):
        cluster.pod("bert-0", gang="bert", size=9)
        await until(lambda: cluster.phase() == "Assembling" and cluster.events())
        cluster.pod("bert-1", gang="bert", size=9)
        await until(lambda: cluster.the_gang()["status"]["reason"] == "2 of 9 members")

    assert len(cluster.events("GangWaiting")) == 1


async def test_a_pod_without_a_gang_gets_an_event(cluster):
    async with leading(cluster):
        cluster.pod("alone", 16)
        await until(cluster.events)

    (event,) = cluster.events()
    assert event["reason"] == "WaitingForGPUs"
    assert (event["involvedObject"]["kind"], event["involvedObject"]["name"]) == ("Pod", "alone")
    assert cluster.all(GANGS) == []


async def test_a_gang_without_a_job_is_owned_by_its_pods_and_reports_at_the_first(cluster):
    async with leading(cluster):
        cluster.gang(gpus=16, owner=None)
        await until(lambda: cluster.phase() == "Waiting" and cluster.events())

    owners = cluster.the_gang()["metadata"]["ownerReferences"]
    assert {(one["kind"], one["name"]) for one in owners} <= {
        ("Pod", "bert-0"),
        ("Pod", "bert-1"),
    }
    assert cluster.events()[-1]["involvedObject"]["name"] == "bert-0"


async def test_a_gang_deleted_before_its_report_leaves_nothing(cluster):
    async with leading(cluster, report_delay=3):
        cluster.gang(gpus=16)
        await passed(cluster)
        cluster.delete("bert-0")
        cluster.delete("bert-1")
        await looked(cluster)

    assert cluster.all(GANGS) == []
    assert [event["involvedObject"]["name"] for event in cluster.events()] == ["late"]


# ---- Placed.


async def test_a_gang_placed_immediately_costs_one_object_one_status_and_one_event(cluster):
    async with leading(cluster, report_delay=3600):
        cluster.gang()
        await until(lambda: cluster.allocated("bert-0", "bert-1"))
        cluster.bind("bert-0")
        await passed(cluster)
        assert cluster.phase() is None
        cluster.bind("bert-1")
        await until(lambda: cluster.events("GangPlaced"))
        await passed(cluster, "another")

    written = [
        (method, path)
        for method, path, _ in cluster.writes
        if path.startswith(GANG_PATH) or path == EVENTS
    ]
    assert written == [
        ("POST", GANG_PATH),
        ("PATCH", f"{OBJECT}/status"),
        ("POST", EVENTS),
    ]
    status = cluster.the_gang()["status"]
    assert (status["phase"], status["members"], status["nodes"]) == ("Placed", "2/2", "gpu-0")
    assert "All 2 members of gang bert are on gpu-0" in cluster.events()[0]["message"]


async def bind_one_by_one(cluster, names):
    for name in names:
        cluster.bind(name)
        await passed(cluster, f"after-{name}")


async def test_a_gang_whose_members_are_bound_one_by_one_costs_one_status(cluster):
    names = [f"bert-{index}" for index in range(8)]
    async with leading(cluster, report_interval=3600):
        cluster.gang(workers=8, gpus=1)
        await until(lambda: cluster.allocated(*names))
        await bind_one_by_one(cluster, names)
        await until(lambda: cluster.phase() == "Placed")

    assert phases(cluster) == [("Placed", None)]
    assert len(cluster.events("GangPlaced")) == 1


async def test_a_gang_whose_members_are_not_bound_soon_says_so(cluster):
    async with leading(cluster):
        cluster.gang()
        await until(lambda: cluster.phase() == "Committing")
        assert cluster.the_gang()["status"]["members"] == "0/2"


async def test_a_gang_that_waited_and_is_bound_soon_costs_one_more_status(cluster):
    async with leading(cluster, report_interval=3600):
        cluster.gang(workers=2, gpus=8)
        await until(lambda: cluster.phase() == "Waiting")
        cluster.node("gpu-1")
        await until(lambda: cluster.allocated("bert-0", "bert-1"))
        cluster.bind("bert-0", "bert-1")
        await until(lambda: cluster.phase() == "Placed")

    assert [phase for phase, _ in phases(cluster)] == ["Waiting", "Placed"]


async def test_a_gang_with_a_plan_is_not_reported_as_waiting(cluster):
    async with leading(cluster, report_delay=3):
        cluster.pod("bert-0", 4, gang="bert")
        await passed(cluster)
        cluster.pod("bert-1", 4, gang="bert")
        await until(lambda: cluster.allocated("bert-0", "bert-1"))
        await looked(cluster)

    assert phases(cluster) in ([], [("Committing", None)])
    assert [event["involvedObject"]["name"] for event in cluster.events()] == ["late"]


async def test_a_gang_reported_as_waiting_is_reported_as_committing(cluster):
    async with leading(cluster):
        cluster.gang(workers=2, gpus=8)
        await until(lambda: cluster.phase() == "Waiting")
        cluster.node("gpu-1")
        await until(
            lambda: cluster.allocated("bert-0", "bert-1") and cluster.phase() == "Committing"
        )
        assert cluster.the_gang()["status"]["members"] == "0/2"
        cluster.bind("bert-0", "bert-1")
        await until(lambda: cluster.phase() == "Placed")

    assert [phase for phase, _ in phases(cluster)] == [
        "Waiting",
        "Committing",
        "Placed",
    ]


async def test_members_with_different_requests_are_named_in_the_event(cluster):
    async with leading(cluster):
        cluster.pod("bert-0", 1, gang="bert")
        cluster.pod("bert-1", 2, gang="bert")
        await until(lambda: cluster.allocated("bert-0", "bert-1"))
        cluster.bind("bert-0", "bert-1")
        await until(lambda: cluster.events("GangPlaced"))

    (event,) = cluster.events("GangPlaced")
    assert event["message"].endswith("they do not all ask for the same")


async def test_a_replacement_is_reported_with_the_remaining_members(cluster):
    async with leading(cluster):
        cluster.gang()
        await until(lambda: cluster.allocated("bert-0", "bert-1"))
        cluster.bind("bert-0", "bert-1")
        await until(lambda: cluster.phase() == "Placed")
        cluster.delete("bert-1")
        cluster.pod("bert-1", 4, gang="bert", uid="again")
        await until(lambda: cluster.record("bert-1"))
        cluster.bind("bert-1")
        await until(lambda: len(cluster.events("GangPlaced")) > 1)

    gang = cluster.the_gang()
    assert [member["uid"] for member in gang["spec"]["plan"]["members"]] == ["bert-0", "again"]
    assert gang["status"]["members"] == "2/2"
    assert cluster.events("GangPlaced")[-1]["message"].startswith("All 2 members of gang bert are")


# ---- What is so now, whatever was planned before.


@pytest.fixture
def machines(cluster):
    """Two machines of known links, in place of the one of unknown."""
    cluster.remove("/api/v1/nodes/gpu-0")
    for name in ("gpu-1", "gpu-2"):
        cluster.node(name)
        path = f"/api/v1/namespaces/{keys.TOPOLOGY_NAMESPACE}/configmaps/{name}"
        cluster.put(path, topology_map(name, PublishedTopology(dgx1_v100(), (True,) * 8)))


async def running(cluster, **gang):
    """Let a gang be placed and bound."""
    cluster.gang(**gang)
    names = [f"bert-{i}" for i in range(gang.get("workers", 2))]
    await until(lambda: cluster.allocated(*names))
    cluster.bind(*names)
    await until(lambda: cluster.phase() == "Placed")


def status(cluster):
    return cluster.the_gang()["status"]


@pytest.mark.usefixtures("machines")
async def test_the_plan_with_a_replacement_is_that_of_the_whole_gang(cluster):
    async with leading(cluster):
        await running(cluster, workers=4, gpus=1)
        before = cluster.the_gang()["spec"]["plan"]
        # Another GPU is free, too, which the gang has no double links to.
        cluster.pod("other", 3)
        await until(lambda: cluster.allocated("other"))
        cluster.delete("bert-1")
        cluster.pod("bert-1", 1, gang="bert", uid="again")
        await until(lambda: cluster.record("bert-1"))
        cluster.bind("bert-1")
        await until(lambda: len(cluster.events("GangPlaced")) > 1)

    after = cluster.the_gang()["spec"]["plan"]
    placed = [(member["pod"], member["node"], member["gpus"]) for member in before["members"]]
    assert [(one["pod"], one["node"], one["gpus"]) for one in after["members"]] == placed
    figures = ("bandwidth", "bestPossible")
    assert [after[key] for key in figures] == [before[key] for key in figures]
    assert after["indexOrder"] > 0
    assert after["id"] != before["id"]


@pytest.mark.usefixtures("machines")
async def test_a_replaced_member_updates_nodes_gpus_and_bandwidth(cluster):
    async with leading(cluster):
        await running(cluster, gpus=8)
        before = status(cluster)
        cluster.delete("bert-1")
        cluster.pod("bert-1", 8, gang="bert", uid="again")
        await until(lambda: cluster.record("bert-1"))
        cluster.bind("bert-1")
        await until(lambda: len(cluster.events("GangPlaced")) > 1)
        await until(lambda: cluster.phase() == "Placed")

    assert (before["nodes"], before["gpus"], before["members"]) == ("gpu-1,gpu-2", 16, "2/2")
    eight = list(range(8))
    assert before["held"] == [{"node": "gpu-1", "gpus": eight}, {"node": "gpu-2", "gpus": eight}]
    now = status(cluster)
    assert now["bandwidth"] > 0
    names = ("members", "nodes", "gpus", "held", "bandwidth")
    assert [now[key] for key in names] == [before[key] for key in names]


async def test_a_lost_member_is_reported_with_the_gpus_of_the_others(cluster):
    async with leading(cluster):
        await running(cluster)
        cluster.delete("bert-1")
        await until(lambda: cluster.phase() == "Assembling")

    assert (status(cluster)["members"], status(cluster)["gpus"]) == ("1/2", 4)
    assert status(cluster)["reason"] == (
        "1 of 2 members are there; GPUs of gpu-0 are reserved for its replacements until"
        " 2026-01-01T00:02:00Z"
    )
    assert status(cluster)["nodes"] == "gpu-0"


@pytest.mark.parametrize(
    ("size", "members"), [(None, "3/3"), (2, "3/2")], ids=["of-its-job", "of-its-mark"]
)
@pytest.mark.usefixtures("machines")
async def test_a_gang_scaled_up_by_its_job_is_placed_with_more_members(cluster, size, members):
    cluster.put(f"{OWNERS}/bert", a_job(2))
    async with leading(cluster):
        await running(cluster, size=size)
        cluster.put(f"{OWNERS}/bert", a_job(3))
        cluster.pod("bert-2", 4, gang="bert", size=size)
        await until(lambda: cluster.allocated("bert-2"))
        cluster.bind("bert-2")
        await until(lambda: (cluster.phase(), status(cluster)["members"]) == ("Placed", members))

    assert len(cluster.the_gang()["spec"]["plan"]["members"]) == 3


async def test_a_gang_scaled_down_by_its_job_is_placed_with_fewer_members(cluster):
    cluster.put(f"{OWNERS}/bert", a_job(2))
    async with leading(cluster):
        await running(cluster)
        cluster.put(f"{OWNERS}/bert", a_job(1))
        cluster.delete("bert-1")
        await until(lambda: (cluster.phase(), status(cluster)["members"]) == ("Placed", "1/1"))


@pytest.mark.parametrize("size", [None, 2], ids=["of-its-job", "of-its-mark"])
@pytest.mark.usefixtures("machines")
async def test_a_gang_scaled_down_has_the_plan_of_the_members_that_are_left(cluster, size):
    cluster.put(f"{OWNERS}/bert", a_job(4))
    async with leading(cluster):
        await running(cluster, workers=4, gpus=2, size=size)
        before = plan(cluster)
        cluster.put(f"{OWNERS}/bert", a_job(2))
        for name in ("bert-1", "bert-3"):
            cluster.delete(name)
        await until(lambda: len(plan(cluster)["members"]) == 2)
        await until(lambda: status(cluster)["members"] == "2/2")

    left = [member for member in before["members"] if member["pod"] in {"bert-0", "bert-2"}]
    assert plan(cluster)["members"] == left
    assert plan(cluster)["id"] == before["id"]
    assert plan(cluster)["bandwidth"] == status(cluster)["bandwidth"] < before["bandwidth"]
    assert not {"bestPossible", "indexOrder"} & plan(cluster).keys()
    assert cluster.the_gang()["spec"]["size"] == 2


async def test_the_plan_keeps_a_member_that_its_job_makes_again(cluster):
    cluster.put(f"{OWNERS}/bert", a_job(3))
    async with leading(cluster):
        await running(cluster, workers=3, gpus=2, size=2)
        cluster.delete("bert-1")
        await until(lambda: status(cluster)["members"] == "2/2")
        await passed(cluster)

    assert len(plan(cluster)["members"]) == 3


def plan(cluster):
    return cluster.the_gang()["spec"]["plan"]


@pytest.mark.parametrize(
    ("policy", "phase"), [({"suspend": True}, "Suspended"), ({}, "Gone")], ids=["suspended", "gone"]
)
async def test_a_gang_without_pods_has_no_nodes(cluster, policy, phase):
    cluster.put(f"{OWNERS}/bert", a_job(2))
    async with leading(cluster):
        await running(cluster)
        cluster.put(f"{OWNERS}/bert", a_job(2, runPolicy=policy))
        cluster.delete("bert-0")
        cluster.delete("bert-1")
        await until(lambda: cluster.phase() == phase)

    assert status(cluster)["members"] == "0/2"
    assert {"nodes", "gpus", "held", "bandwidth"} & status(cluster).keys() == set()


async def test_a_stateful_set_scaled_to_zero_is_suspended(cluster):
    path = "/apis/apps/v1/namespaces/team/statefulsets/bert"
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "bert", "uid": "set"}

    def scale(replicas):
        template = a_job(1)["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]
        spec = {"replicas": replicas, "podManagementPolicy": "Parallel", "template": template}
        cluster.put(path, {"metadata": {"uid": "set"}, "spec": spec})

    scale(2)
    async with leading(cluster):
        await running(cluster, owner=owner)
        scale(0)
        cluster.delete("bert-1")
        await until(lambda: cluster.phase() != "Placed")
        cluster.delete("bert-0")
        await until(lambda: cluster.phase() == "Suspended")


@pytest.mark.parametrize(
    ("ended", "reason"),
    [
        ({"conditions": [{"type": "Succeeded", "status": "True"}]}, None),
        ({"conditions": [{"type": "Failed", "status": "True"}]}, "its owner has failed"),
    ],
    ids=["succeeded", "failed"],
)
async def test_a_gang_whose_job_has_ended_is_finished(cluster, ended, reason):
    cluster.put(f"{OWNERS}/bert", a_job(2))
    async with leading(cluster):
        await running(cluster)
        # Operators suspend a job that has ended, too, and delete its workers.
        cluster.put(f"{OWNERS}/bert", {**a_job(2, runPolicy={"suspend": True}), "status": ended})
        cluster.delete("bert-0")
        cluster.delete("bert-1")
        await until(lambda: cluster.phase() == "Finished")

    assert status(cluster).get("reason") == reason
    assert status(cluster)["members"] == "0/2"


@pytest.mark.parametrize(
    ("ended", "phase"),
    [("Succeeded", "Finished"), ("Failed", "Finished"), ("Active", "Suspended")],
)
async def test_a_set_that_its_mpi_job_scales_to_zero_is_finished_if_the_job_is(
    cluster, ended, phase
):
    job = {"apiVersion": "kubeflow.org/v1alpha1", "kind": "MPIJob", "name": "bert", "uid": "mpi"}
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "bert", "uid": "set"}

    def scale(replicas):
        template = a_job(1)["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]
        spec = {"replicas": replicas, "podManagementPolicy": "Parallel", "template": template}
        metadata = {"uid": "set", "ownerReferences": [{**job, "controller": True}]}
        path = "/apis/apps/v1/namespaces/team/statefulsets/bert"
        cluster.put(path, {"metadata": metadata, "spec": spec})

    scale(2)
    path = "/apis/kubeflow.org/v1alpha1/namespaces/team/mpijobs/bert"
    async with leading(cluster):
        await running(cluster, owner=owner)
        cluster.put(path, {"metadata": {"uid": "mpi"}, "status": {"launcherStatus": ended}})
        scale(0)
        cluster.delete("bert-1")
        cluster.delete("bert-0")
        await until(lambda: cluster.phase() == phase)
        await passed(cluster)

    assert cluster.phase() == phase


async def test_a_suspended_gang_is_finished_once_its_owner_says_so_later(cluster):
    suspended = a_job(2, runPolicy={"suspend": True})
    cluster.put(f"{OWNERS}/bert", a_job(2))
    async with leading(cluster, owner_retry=0.05, report_interval=0.3):
        await running(cluster)
        status = f"{OBJECT}/status"
        # The watch brings the write while it is still pending.
        cluster.outcomes["PATCH", status].append("unanswered")
        cluster.put(f"{OWNERS}/bert", suspended)
        cluster.delete("bert-1")
        cluster.delete("bert-0")
        await until(
            lambda: cluster.phase() == "Suspended" and not cluster.outcomes["PATCH", status]
        )
        await passed(cluster)

        ended = {"status": {"conditions": [{"type": "Succeeded", "status": "True"}]}}
        cluster.put(f"{OWNERS}/bert", {**suspended, **ended})

        await until(lambda: cluster.phase() == "Finished")


async def test_a_waiting_gang_that_is_suspended_says_so_without_the_delay_of_one_that_waits(
    cluster,
):
    cluster.put(f"{OWNERS}/bert", a_job(2))
    async with leading(cluster, report_interval=3600):
        cluster.gang(gpus=16)
        await until(lambda: cluster.phase() == "Waiting")
        cluster.put(f"{OWNERS}/bert", a_job(2, runPolicy={"suspend": True}))
        cluster.delete("bert-0")
        cluster.delete("bert-1")
        await until(lambda: cluster.phase() == "Suspended")


async def test_a_gang_that_shrinks_says_so_without_the_delay_of_one_that_waits(cluster):
    cluster.put(f"{OWNERS}/bert", a_job(2))
    async with leading(cluster, report_interval=3600):
        await running(cluster)
        cluster.put(f"{OWNERS}/bert", a_job(1))
        cluster.delete("bert-1")
        await until(lambda: (cluster.phase(), status(cluster)["members"]) == ("Placed", "1/1"))


def set_unhealthy(cluster, *gpus):
    """List unhealthy GPUs of the node."""
    name = f"{keys.UNHEALTHY_NAME_PREFIX}gpu-0"
    data = {keys.UNHEALTHY_KEY: ",".join(map(str, gpus))}
    path = f"/api/v1/namespaces/{keys.TOPOLOGY_NAMESPACE}/configmaps/{name}"
    metadata = {"name": name, "namespace": keys.TOPOLOGY_NAMESPACE}
    cluster.put(path, {"metadata": metadata, "data": data})


def health(cluster):
    """Return the condition of a gang about its GPUs; None: it has none."""
    conditions = status(cluster)["conditions"]
    return next((each for each in conditions if each["type"] == "GPUsHealthy"), None)


async def test_unhealthy_gpus_of_a_member_are_a_condition_and_an_event(cluster):
    async with leading(cluster):
        await running(cluster, workers=2, gpus=2)
        assert health(cluster) is None
        set_unhealthy(cluster, 7)
        await passed(cluster)
        assert health(cluster) is None

        gpu = cluster.record("bert-1")["gpus"][0]["i"]
        set_unhealthy(cluster, 7, gpu)
        await until(lambda: health(cluster) and cluster.events("GangGPUUnhealthy"))
        text = f"unhealthy GPUs: {gpu} of gpu-0 (pod bert-1)"
        assert (health(cluster)["status"], health(cluster)["reason"]) == ("False", "GPUUnhealthy")
        assert text in health(cluster)["message"]
        (event,) = cluster.events("GangGPUUnhealthy")
        assert f"Gang bert has {text}" in event["message"]
        assert (event["involvedObject"]["kind"], event["type"]) == ("PyTorchJob", "Warning")

        set_unhealthy(cluster)
        await until(lambda: health(cluster)["status"] == "True")
        assert health(cluster)["reason"] == "AllHealthy"
    assert cluster.phase() == "Placed"


async def test_a_failed_event_about_unhealthy_gpus_is_repeated(cluster):
    async with leading(cluster):
        await running(cluster)
        cluster.outcomes["POST", EVENTS].append((503, "starting"))
        set_unhealthy(cluster, 0)
        await until(lambda: health(cluster) and cluster.events("GangGPUUnhealthy"))


async def test_a_gang_created_again_is_reported_again(cluster):
    async with leading(cluster):
        await running(cluster)
        cluster.delete("bert-0")
        cluster.delete("bert-1")
        await until(lambda: cluster.phase() == "Gone")
        await running(cluster)
    assert status(cluster)["members"] == "2/2"


async def test_nothing_is_kept_of_a_gang_whose_object_was_deleted(cluster):
    async with leading(cluster) as leader:
        await running(cluster)
        cluster.delete("bert-0")
        cluster.delete("bert-1")
        await until(lambda: cluster.phase() == "Gone")
        cluster.remove(OBJECT)
        await passed(cluster)
        reporter = leader.context.planner._status_reporter
        kept = (reporter._reports, reporter._gangs._written, reporter._gangs._statuses)
        names = {key[1] for each in kept for key in each}

    assert names <= {"sign"}


async def test_the_next_leader_reports_a_gang_whose_pods_were_deleted(cluster):
    async with leading(cluster):
        await running(cluster)
    cluster.delete("bert-0")
    cluster.delete("bert-1")
    async with leading(cluster, term=8):
        await until(lambda: cluster.phase() == "Gone")


async def test_a_succeeded_gang_holds_no_gpus(cluster):
    async with leading(cluster):
        await running(cluster)
        for name in ("bert-0", "bert-1"):
            path = f"/api/v1/namespaces/team/pods/{name}"
            cluster.put(path, {**cluster[name], "status": {"phase": "Succeeded"}})
        await until(lambda: cluster.phase() == "Finished")

    assert (status(cluster)["members"], status(cluster).get("nodes")) == ("2/2", None)


async def test_changes_within_the_delay_cost_one_write(cluster):
    async with leading(cluster, report_delay=3600):
        await running(cluster)
        before = len(cluster.status_patches())
        for name in ("bert-0", "bert-1"):
            cluster.delete(name)
            await passed(cluster, f"after-{name}")

    assert len(cluster.status_patches()) == before


async def test_a_status_that_an_older_crd_prunes_is_written_once(cluster):
    async with leading(cluster):
        await running(cluster)
        gang = cluster.the_gang()
        kept = {key: value for key, value in gang["status"].items() if key not in {"gpus", "held"}}
        written = len(cluster.status_patches())
        cluster.put(OBJECT, {**gang, "status": kept})
        for name in "abc":
            await passed(cluster, name)

    assert len(cluster.status_patches()) == written


# ---- What goes wrong.


@pytest.mark.parametrize("wrong", [(500, "broken"), (404, "it is gone"), "lost", "unanswered"])
async def test_a_refused_status_is_retried(cluster, wrong):
    cluster.outcomes["PATCH", f"{OBJECT}/status"].append(wrong)
    cluster.outcomes["GET", OBJECT].append((503, "starting"))
    async with leading(cluster):
        cluster.gang(gpus=8)
        await until(lambda: cluster.phase() == "Waiting" and cluster.events())


@pytest.mark.parametrize(
    ("wrong", "made"),
    [
        pytest.param((500, "broken"), 1, id="the server failed"),
        pytest.param((409, "it is there"), 0, id="made before"),
    ],
)
async def test_an_event_is_created_once_despite_failures(cluster, wrong, made):
    async with leading(cluster):
        cluster.outcomes["POST", EVENTS].append(wrong)
        cluster.pod("alone", 16)
        await until(lambda: any(path == EVENTS for _, path, _ in cluster.writes))
        await until(lambda: len(cluster.events()) == made)
        await looked(cluster)

    assert len(cluster.events()) == made + 1


async def test_a_plan_is_written_to_a_gang_that_was_changed_meanwhile(cluster):
    async with leading(cluster):
        cluster.gang(gpus=8)
        await until(lambda: cluster.phase() == "Waiting" and cluster.events())
        gang = cluster.the_gang()
        cluster.put(OBJECT, {**gang, "metadata": {**gang["metadata"], "labels": {"a": "b"}}})
        cluster.node("gpu-1")
        await until(lambda: cluster.allocated("bert-0", "bert-1"))

    assert cluster.the_gang()["metadata"]["labels"] == {"a": "b"}
    assert cluster.the_gang()["spec"]["plan"]["id"] == cluster.record("bert-0")["plan"]
    assert cluster.the_gang()["spec"]["plan"]["plannedAt"] == "2026-01-01T00:01:00Z"


async def test_a_status_names_the_generation_of_the_gang_that_it_describes(cluster):
    async with leading(cluster):
        cluster.gang(gpus=8)
        await until(lambda: cluster.phase() == "Waiting")
        gang = cluster.the_gang()
        cluster.put(OBJECT, {**gang, "metadata": {**gang["metadata"], "generation": 7}})
        cluster.node("gpu-1")
        await until(lambda: cluster.allocated("bert-0", "bert-1"))
        cluster.bind("bert-0", "bert-1")
        await until(lambda: cluster.phase() == "Placed")

    assert cluster.the_gang()["status"]["observedGeneration"] == 7


async def test_a_deleted_gang_is_created_again_with_its_plan(cluster):
    async with leading(cluster):
        cluster.gang(gpus=8)
        await until(lambda: cluster.phase() == "Waiting" and cluster.events())
        cluster.remove(OBJECT)
        cluster.node("gpu-1")
        await until(lambda: cluster.allocated("bert-0", "bert-1"))

    assert cluster.the_gang()["spec"]["plan"]["id"] == cluster.record("bert-0")["plan"]


async def test_a_plan_is_written_to_a_gang_that_the_watch_does_not_show_yet(cluster):
    cluster.outcomes["POST", GANG_PATH].append((409, "it is there"))
    async with leading(cluster, report_delay=3600):
        cluster.gang()
        await until(lambda: cluster.allocated("bert-0", "bert-1"))

    assert OBJECT in cluster.reads
    assert cluster.the_gang()["spec"]["plan"]["id"] == "7-1"


@pytest.mark.parametrize(
    "refusal",
    [
        pytest.param((403, "exceeded quota: few-gangs"), id="quota"),
        pytest.param((422, "few-gangs: its spec is invalid"), id="invalid"),
    ],
)
async def test_a_gang_that_cannot_be_created_is_reported_at_its_job(cluster, refusal):
    cluster.node("gpu-1", 4)
    cluster.outcomes["POST", GANG_PATH] += [refusal] * 1000
    async with leading(cluster):
        # It waited before, for another reason.
        cluster.gang(workers=2, gpus=8)
        await until(lambda: cluster.events("GangWaiting"))
        cluster.node("gpu-1", 8)
        await until(
            lambda: any("few-gangs" in one["message"] for one in cluster.events("GangWaiting"))
        )

    assert {one["involvedObject"]["uid"] for one in cluster.events("GangWaiting")} == {"job"}
    assert cluster.all(GANGS) == []
    assert len(cluster.events("GangWaiting")) == 2


async def test_a_refused_plan_is_reported_in_the_existing_gang(cluster):
    async with leading(cluster):
        cluster.gang(workers=2, gpus=8)
        await until(lambda: cluster.phase() == "Waiting")
        cluster.outcomes["PATCH", OBJECT] += [(403, "no plans here")] * 1000
        cluster.node("gpu-1")
        await until(lambda: "no plans here" in cluster.the_gang()["status"].get("reason", ""))

    assert cluster.phase() == "Waiting"


def plans(cluster):
    """Return the paths of the writes of plans."""
    return [path for method, path, _ in cluster.writes if (method, path) == ("PATCH", OBJECT)]


class Late(Cluster):
    """Holds back the plan of bert-2, which is the first that comes after `held` is cleared."""

    def __init__(self):
        super().__init__()
        self.held, self.go = asyncio.Event(), asyncio.Event()
        self.held.set()

    async def _answer(self, request):
        if request.method == "PATCH" and request.path == OBJECT and not self.held.is_set():
            self.held.set()
            await self.go.wait()
        return await super()._answer(request)


async def test_plans_of_members_that_come_one_by_one_never_replace_a_newer_one():
    async with Late() as cluster, leading(cluster):
        cluster.node()
        cluster.node("gpu-1")
        cluster.node("gpu-2")
        cluster.put(f"{OWNERS}/bert", a_job(2))
        await running(cluster)
        cluster.put(f"{OWNERS}/bert", a_job(5))
        cluster.held.clear()
        cluster.pod("bert-2", 4, gang="bert")
        await cluster.held.wait()
        cluster.pod("bert-3", 4, gang="bert")
        await looked(cluster)
        cluster.pod("bert-4", 4, gang="bert")
        await looked(cluster, "later")
        before = len(plans(cluster))
        cluster.go.set()
        await until(lambda: cluster.allocated("bert-2", "bert-3", "bert-4"))

    # That of bert-2, which was held back, and that of all.
    assert len(plans(cluster)) - before == 2
    members = [member["pod"] for member in cluster.the_gang()["spec"]["plan"]["members"]]
    assert members == [f"bert-{index}" for index in range(5)]


class Held(Cluster):
    """Holds back writes to the Gangs of another namespace."""

    def __init__(self):
        super().__init__()
        self.go = asyncio.Event()
        self.asking = 0

    async def _answer(self, request):
        if request.method != "GET" and "/other/gangs" in request.path:
            self.asking += 1
            await self.go.wait()
        return await super()._answer(request)


async def test_reports_of_many_gangs_do_not_delay_those_of_another_namespace():
    async with Held() as cluster, leading(cluster):
        cluster.node()
        for number in range(20):
            labels = {keys.POD_GROUP_NAME: f"x-{number}", keys.POD_GROUP_MIN_AVAILABLE: "2"}
            pod = a_held_pod(1, f"x-{number}", namespace="other", labels=labels)
            cluster.put(f"/api/v1/namespaces/other/pods/x-{number}", pod)
        await until(lambda: cluster.asking == 4)
        cluster.gang()
        await until(lambda: cluster.allocated("bert-0", "bert-1"))
        await until(lambda: cluster.phase() == "Committing")
        assert cluster.asking == 4
        cluster.go.set()


async def test_members_that_end_slowly_leave_the_plan_when_they_are_gone(cluster):
    cluster.put(f"{OWNERS}/bert", a_job(2))
    async with leading(cluster):
        await running(cluster)
        cluster.put(f"{OWNERS}/bert", a_job(1))
        metadata = {**cluster["bert-1"]["metadata"], "deletionTimestamp": "2026-01-01T00:01:00Z"}
        cluster.put(
            "/api/v1/namespaces/team/pods/bert-1", {**cluster["bert-1"], "metadata": metadata}
        )
        await until(lambda: (cluster.phase(), status(cluster)["members"]) == ("Placed", "1/1"))
        await passed(cluster)
        cluster.delete("bert-1")
        await until(lambda: len(plan(cluster)["members"]) == 1)
