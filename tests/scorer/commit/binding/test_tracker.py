"""Written plans, until all their pods are bound or evicted."""

import asyncio

import pytest
import pytest_asyncio
from support.builders import a_seen
from support.servers.leader_harness import JOB, NOW, Clock, Cluster, leading
from support.waiting import until

from linkwise.cluster import keys
from linkwise.planning.gang.crd import GANGS
from scorer.commit.binding.pending_binding import recreation_time
from scorer.commit.binding.tracker import BindingTracker


@pytest_asyncio.fixture
async def cluster():
    async with Cluster() as running:
        for name in ("gpu-0", "gpu-1"):
            running.node(name)
        yield running


@pytest.fixture
def clock():
    return Clock()


def evicted(cluster):
    """Return the requested evictions by pod."""
    return {
        path.split("/")[-2]: body for _, path, body in cluster.writes if path.endswith("/eviction")
    }


async def placed(cluster, *bound, **gang):
    """Place a gang and bind some of its pods; return its node."""
    cluster.gang(gpus=2, **gang)
    await until(lambda: cluster.allocated("bert-0", "bert-1"))
    cluster.bind(*bound)
    cluster.mark_unschedulable(*{"bert-0", "bert-1"}.difference(bound))
    # Once a later pod is placed, the planner has seen this.
    cluster.pod("seen", 1)
    await until(lambda: cluster.allocated("seen"))
    return cluster.record("bert-0")["node"]


def recreate(cluster, **gang):
    """Create the pods of a gang again, as its job controller does."""
    for i in (0, 1):
        cluster.pod(f"bert-{i}", 2, gang="bert", uid=f"new-{i}", **gang)


async def passed(cluster, clock, seconds, name="sign"):
    """Advance the clock, and create a pod so that the planner sees it."""
    clock.now += seconds
    cluster.pod(name, 1)
    await until(lambda: cluster.allocated(name))


async def test_an_unbound_member_evicts_its_gang_which_is_placed_elsewhere(cluster, clock):
    async with leading(cluster, clock=clock):
        node = await placed(cluster, "bert-0")
        await passed(cluster, clock, 59)
        assert evicted(cluster) == {}
        await passed(cluster, clock, 2, "another")
        await until(lambda: not cluster["bert-0"] and not cluster["bert-1"])
        recreate(cluster)
        await until(lambda: cluster.allocated("bert-0", "bert-1"))
        assert cluster.record("bert-0")["node"] != node

    assert evicted(cluster).keys() == {"bert-0", "bert-1"}
    assert evicted(cluster)["bert-0"]["deleteOptions"] == {"preconditions": {"uid": "bert-0"}}


async def test_the_event_says_why_a_gang_is_evicted(cluster, clock):
    for name in ("bert-0", "bert-1"):
        cluster.fail("POST", f"{name}/eviction", (429, ""))
    async with leading(cluster, clock=clock):
        node = await placed(cluster, "bert-0")
        await passed(cluster, clock, 61)
        await until(lambda: cluster.events("GangEvicted"))
    (event,) = cluster.events("GangEvicted")
    why = f"placed again together: pod bert-1 was not bound to {node} within 60 s"
    assert event["message"] == f"All 2 members of gang bert were evicted, to be {why}"


async def test_the_deadline_starts_when_a_scheduler_tries_a_pod(cluster, clock):
    async with leading(cluster, clock=clock):
        cluster.gang(gpus=2)
        await until(lambda: cluster.allocated("bert-0", "bert-1"))
        await passed(cluster, clock, 0, "seen")
        for name in "abc":
            await passed(cluster, clock, 61, name)
        # The members are patched concurrently, so that either may be the first one.
        await until(lambda: "no scheduler has looked at pod bert-" in (reason(cluster) or ""))
        assert cluster.phase() == "Committing"
        cluster.mark_unschedulable("bert-0")
        await passed(cluster, clock, 59, "tried")
        assert evicted(cluster) == {}
        await passed(cluster, clock, 61, "late")
        await until(lambda: not cluster["bert-0"] and not cluster["bert-1"])


def reason(cluster):
    return cluster.the_gang()["status"].get("reason")


async def test_only_nodes_that_the_scheduler_could_not_use_are_excluded(cluster, clock):
    cluster.node("small", 4)
    async with leading(cluster, clock=clock):
        cluster.gang(gpus=8)
        await until(lambda: cluster.allocated("bert-0", "bert-1"))
        cluster.mark_unschedulable("bert-0")
        await passed(cluster, clock, 0, "seen")
        await passed(cluster, clock, 61)
        await until(lambda: not cluster["bert-0"] and not cluster["bert-1"])
        for i in (0, 1):
            cluster.pod(f"bert-{i}", 8, gang="bert", uid=f"new-{i}")
        await until(lambda: "excluded" in (reason(cluster) or ""))

    assert "excluded, since a member could not be bound there: gpu-" in reason(cluster)


@pytest.mark.parametrize("owner", [JOB, None], ids=["job", "no owner"])
async def test_a_gang_that_is_bound_in_time_stays(cluster, clock, owner):
    async with leading(cluster, clock=clock):
        await placed(cluster, "bert-0", "bert-1", owner=owner)
        await until(lambda: cluster.phase() == "Placed")
        await passed(cluster, clock, 3600)

    assert evicted(cluster) == {}


async def test_pods_without_a_controller_are_not_evicted_and_the_status_says_why(cluster, clock):
    async with leading(cluster, clock=clock):
        await placed(cluster, "bert-0", owner=None)
        await passed(cluster, clock, 61)
        await until(lambda: cluster.phase() == "Committing")

    assert evicted(cluster) == {}
    assert "has no controller that would create it again" in cluster.the_gang()["status"]["reason"]


async def test_pods_whose_job_counts_evictions_as_failures_stay(cluster, clock):
    cluster.put("/apis/batch/v1/namespaces/team/jobs/sweep", {"metadata": {"uid": "sweep"}})
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "sweep", "uid": "sweep"}
    async with leading(cluster, clock=clock):
        await placed(cluster, owner=owner)
        await passed(cluster, clock, 61)
        await until(lambda: cluster.phase() == "Committing")

    assert evicted(cluster) == {}
    assert "Job sweep would count" in cluster.the_gang()["status"]["reason"]


IGNORES = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}


async def test_a_job_is_not_evicted_before_the_recreation_time(cluster, clock):
    body = {"metadata": {"uid": "sweep"}, "spec": {"podFailurePolicy": {"rules": [IGNORES]}}}
    cluster.put("/apis/batch/v1/namespaces/team/jobs/sweep", body)
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "sweep", "uid": "sweep"}
    names = [f"bert-{i}" for i in range(8)]
    async with leading(cluster, clock=clock):
        cluster.gang(workers=8, gpus=1, owner=owner)
        await until(lambda: cluster.allocated(*names))
        cluster.mark_unschedulable(*names)
        await passed(cluster, clock, 0, "seen")
        await passed(cluster, clock, 61)
        await until(lambda: "it is not evicted before 600 s" in (reason(cluster) or ""))
        assert evicted(cluster) == {}
        await passed(cluster, clock, 540, "late")
        await until(lambda: not any(cluster[name] for name in names))


@pytest.mark.parametrize(("pods", "seconds"), [(1, 10), (2, 20), (5, 160), (8, 600), (4096, 600)])
def test_recreation_time_doubles_with_each_failure(pods, seconds):
    job = {"apiVersion": "batch/v1", "kind": "Job", "name": "sweep", "uid": "sweep"}
    seen = [a_seen(1, f"sweep-{i}", owner=job) for i in range(pods)]

    assert recreation_time(seen) == seconds
    assert recreation_time([a_seen(1, "bert-0", owner=JOB)] * pods) == 0


async def test_a_gang_that_could_not_be_evicted_is_placed_once_bound(cluster, clock):
    async with leading(cluster, clock=clock):
        await placed(cluster, "bert-0", owner=None)
        await passed(cluster, clock, 61)
        await until(lambda: cluster.phase() == "Committing")
        cluster.bind("bert-1")
        await until(lambda: cluster.phase() == "Placed")


@pytest.mark.parametrize(
    "refusal",
    [
        pytest.param((429, "it would violate the disruption budget"), id="disruption budget"),
        pytest.param((409, "it has changed"), id="the pod has changed"),
        pytest.param("lost", id="no response"),
    ],
)
async def test_a_refused_eviction_is_retried(cluster, clock, refusal):
    cluster.outcomes["POST", "/api/v1/namespaces/team/pods/bert-0/eviction"].append(refusal)
    async with leading(cluster, clock=clock):
        await placed(cluster, "bert-0")
        await passed(cluster, clock, 61)
        await until(lambda: not cluster["bert-0"] and not cluster["bert-1"])


async def test_a_pod_with_a_conflict_evicts_its_gang_immediately(cluster, clock):
    async with leading(cluster, clock=clock):
        node = await placed(cluster, "bert-0")
        cluster.remove(f"/api/v1/nodes/{node}")
        await until(lambda: not cluster["bert-0"] and not cluster["bert-1"])

    assert evicted(cluster).keys() == {"bert-0", "bert-1"}


async def test_a_refused_eviction_from_a_deleted_node_is_retried_before_a_scheduler_looks(
    cluster, clock
):
    cluster.outcomes["POST", "/api/v1/namespaces/team/pods/bert-0/eviction"].append((409, "newer"))
    async with leading(cluster, clock=clock):
        cluster.gang(gpus=2)
        await until(lambda: cluster.allocated("bert-0", "bert-1"))
        cluster.remove(f"/api/v1/nodes/{cluster.record('bert-0')['node']}")
        await until(lambda: not cluster["bert-1"])
        await passed(cluster, clock, 61)
        await until(lambda: not cluster["bert-0"])


async def test_a_single_pod_is_evicted_too(cluster, clock):
    async with leading(cluster, clock=clock):
        cluster.pod("alone", 1, owner={**JOB, "kind": "ReplicaSet"})
        await until(lambda: cluster.allocated("alone"))
        cluster.mark_unschedulable("alone")
        await passed(cluster, clock, 0, "looked")
        await passed(cluster, clock, 61)
        await until(lambda: cluster["alone"] is None)


@pytest.mark.parametrize("recorded", [True, False], ids=["by its Gang", "by its pods"])
async def test_a_plan_of_the_last_leader_is_tracked_until_it_is_bound(cluster, clock, recorded):
    async with leading(cluster, clock=clock):
        await placed(cluster, "bert-0")
    if not recorded:
        gang = cluster.the_gang()["metadata"]["name"]
        cluster.remove(f"/apis/linkwise.dev/v1alpha1/namespaces/team/gangs/{gang}")
    async with leading(cluster, term=8, clock=clock):
        assert not cluster.all(GANGS) or recorded
        cluster.bind("bert-1")
        await until(lambda: cluster.phase() == "Placed")


async def test_an_overdue_plan_of_the_last_leader_is_given_up(cluster, clock):
    async with leading(cluster, clock=clock):
        await placed(cluster, "bert-0")
    clock.now = NOW + 1000
    async with leading(cluster, term=8, clock=clock):
        await passed(cluster, clock, 0, "looked")
        await passed(cluster, clock, 61)
        await until(lambda: not cluster["bert-0"] and not cluster["bert-1"])


async def test_the_exclusion_of_a_node_ends(cluster, clock):
    cluster.remove("/api/v1/nodes/gpu-1")
    cluster.node("sign", 8)
    async with leading(cluster, clock=clock):
        await placed(cluster, "bert-0", nodeSelector={keys.HOSTNAME: "gpu-0"})
        await passed(cluster, clock, 61)
        await until(lambda: not cluster["bert-0"] and not cluster["bert-1"])
        recreate(cluster, nodeSelector={keys.HOSTNAME: "gpu-0"})
        await until(lambda: cluster.phase() == "Waiting")
        await passed(cluster, clock, 11 * 60, "another")
        await until(lambda: cluster.allocated("bert-0", "bert-1"))


# ---- The answer of kube-scheduler.


def says(text):
    others = "1 node(s) didn't satisfy plugin(s) [NodeAffinity]"
    preemption = "preemption: 0/2 nodes are available: 2 Preemption is not helpful."
    return f"0/2 nodes are available: {text}, {others}. {preemption}"


OF_NODE = says("1 Insufficient rdma/hca")
OF_UNIT = '0/2 nodes are available: persistentvolumeclaim "data" not found.'
OF_OTHERS = says("1 no licence is left")


async def answered(cluster, message, *names, **pod):
    """Place a gang, and let kube-scheduler answer about some of its members."""
    cluster.gang(gpus=2, **pod)
    await until(lambda: cluster.allocated("bert-0", "bert-1"))
    cluster.mark_unschedulable(*(names or ("bert-0", "bert-1")), message=message)
    words = message.split(": ", 1)[1].split(",")[0].removeprefix("1 ").removesuffix(".")
    await until(lambda: words in (reason(cluster) or ""))
    assert cluster.phase() == "Committing"


async def test_an_answer_about_the_node_moves_the_gang_within_seconds(cluster, clock):
    async with leading(cluster, clock=clock):
        await answered(cluster, OF_NODE)
        node = cluster.record("bert-0")["node"]
        await passed(cluster, clock, 3)
        assert evicted(cluster) == {}
        await passed(cluster, clock, 2, "another")
        await until(lambda: not cluster["bert-0"] and not cluster["bert-1"])
        recreate(cluster)
        await until(lambda: cluster.allocated("bert-0", "bert-1"))
        assert cluster.record("bert-0")["node"] != node
        await until(lambda: cluster.events("GangEvicted"))

    (event,) = cluster.events("GangEvicted")
    why = f"was not bound to {node}: kube-scheduler says: Insufficient rdma/hca"
    assert event["message"].endswith(f"pod bert-0 {why}")


async def test_an_answer_that_does_not_stand_evicts_nobody(cluster, clock):
    async with leading(cluster, clock=clock):
        await answered(cluster, OF_NODE, "bert-1")
        clock.now += 3
        cluster.bind("bert-0", "bert-1")
        await until(lambda: cluster.phase() == "Placed")
        await passed(cluster, clock, 100)

    assert evicted(cluster) == {}


async def test_an_answer_stands_again_for_a_while_after_a_change_of_its_node(cluster, clock):
    path = "/api/v1/namespaces/team/pods/neighbour"
    neighbour = {"metadata": {"namespace": "team", "uid": "nb"}, "status": {"phase": "Running"}}
    for node in ("gpu-0", "gpu-1"):
        cluster.put(f"{path}-{node}", {**neighbour, "spec": {"nodeName": node}})
    async with leading(cluster, clock=clock):
        await answered(cluster, OF_NODE)
        cluster.remove(f"{path}-{cluster.record('bert-0')['node']}")
        await passed(cluster, clock, 0, "seen")
        await passed(cluster, clock, 5)
        await passed(cluster, clock, 3, "another")
        assert evicted(cluster) == {}
        await passed(cluster, clock, 2, "late")
        await until(lambda: not cluster["bert-0"] and not cluster["bert-1"])


async def test_what_no_other_node_would_change_evicts_nobody(cluster, clock):
    async with leading(cluster, clock=clock):
        await answered(cluster, OF_UNIT, "bert-1")
        for name in "abc":
            await passed(cluster, clock, 61, name)
        assert 'persistentvolumeclaim "data" not found; no other node' in reason(cluster)
        # It appears, and the node has no room for it.
        cluster.mark_unschedulable("bert-1", message=OF_NODE)
        await until(lambda: "rdma/hca" in reason(cluster))
        assert evicted(cluster) == {}
        await passed(cluster, clock, 5, "later")
        await until(lambda: not cluster["bert-0"] and not cluster["bert-1"])


async def test_a_program_of_others_that_refuses_a_second_node_in_the_same_words_refuses_all(
    cluster, clock
):
    async with leading(cluster, clock=clock):
        await answered(cluster, OF_OTHERS)
        await passed(cluster, clock, 5)
        await until(lambda: not cluster["bert-0"] and not cluster["bert-1"])
        recreate(cluster)
        await until(lambda: cluster.allocated("bert-0", "bert-1"))
        before = len(evicted(cluster))
        cluster.mark_unschedulable("bert-0", "bert-1", message=OF_OTHERS)
        await until(lambda: "no licence is left; no other node" in (reason(cluster) or ""))
        for name in "abc":
            await passed(cluster, clock, 61, name)
        # The first exclusion has ended, and the answer is still the same.
        assert "no licence is left; no other node" in reason(cluster)
        assert cluster["bert-0"]
        assert len(evicted(cluster)) == before


async def test_members_of_a_job_that_run_stay_until_creating_them_again_takes_no_longer(
    cluster, clock
):
    body = {"metadata": {"uid": "sweep"}, "spec": {"podFailurePolicy": {"rules": [IGNORES]}}}
    cluster.put("/apis/batch/v1/namespaces/team/jobs/sweep", body)
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "sweep", "uid": "sweep"}
    async with leading(cluster, clock=clock):
        await answered(cluster, OF_NODE, "bert-1", owner=owner)
        cluster.bind("bert-0")
        await passed(cluster, clock, 0, "bound")
        await passed(cluster, clock, 5)
        await until(lambda: "it is not evicted before 20 s" in (reason(cluster) or ""))
        assert evicted(cluster) == {}
        await passed(cluster, clock, 16, "late")
        await until(lambda: not cluster["bert-0"] and not cluster["bert-1"])


REPLICAS = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "web"}


async def test_a_replacement_of_a_single_pod_does_not_go_where_its_predecessor_was_refused(
    cluster, clock
):
    async with leading(cluster, clock=clock):
        for name, other in (("web-a", "web-b"), ("web-b", None)):
            cluster.pod(name, 2, owner=REPLICAS)
            await until(lambda name=name: cluster.allocated(name))
            if other:
                node = cluster.record(name)["node"]
                cluster.mark_unschedulable(name, message=OF_NODE)
                await passed(cluster, clock, 0, "looked")
                await passed(cluster, clock, 5)
                await until(lambda name=name: cluster[name] is None)
        assert cluster.record("web-b")["node"] != node


@pytest.mark.parametrize("change", ["the node", "a pod"])
async def test_an_exclusion_ends_once_its_cause_may_be_gone(cluster, clock, change):
    cluster.remove("/api/v1/nodes/gpu-1")
    neighbour = {"metadata": {"namespace": "team", "uid": "nb"}, "spec": {"nodeName": "gpu-0"}}
    path = "/api/v1/namespaces/team/pods/neighbour"
    cluster.put(path, {**neighbour, "status": {"phase": "Running"}})
    cluster.node("sign", 8)
    chosen = {"nodeSelector": {keys.HOSTNAME: "gpu-0"}}
    async with leading(cluster, clock=clock):
        await answered(cluster, OF_NODE, **chosen)
        await passed(cluster, clock, 5)
        await until(lambda: not cluster["bert-0"] and not cluster["bert-1"])
        recreate(cluster, **chosen)
        await until(lambda: "gpu-0 until 2026-01-01T00:0" in (reason(cluster) or ""))
        if change == "a pod":
            cluster.remove(path)
        else:
            cluster.node("gpu-0", **{"example.com/fixed": "true"})
        await until(lambda: cluster.allocated("bert-0", "bert-1"))


# ---- Several plans of one gang.


async def joined(cluster, *bound):
    """Place a gang, bind some of its pods, and then place one more member."""
    await placed(cluster, *bound)
    cluster.pod("bert-2", 2, gang="bert")
    await until(lambda: cluster.allocated("bert-2"))


async def test_a_later_member_does_not_untrack_the_first_plan(cluster, clock):
    async with leading(cluster, clock=clock):
        await joined(cluster, "bert-0")
        await passed(cluster, clock, 59)
        cluster.bind("bert-2")
        await passed(cluster, clock, 0, "looked")
        assert cluster.phase() != "Placed"
        await passed(cluster, clock, 2, "another")
        await until(lambda: not any(map(cluster.__getitem__, ("bert-0", "bert-1", "bert-2"))))


async def test_several_plans_of_a_gang_are_restored(cluster, clock):
    async with leading(cluster, clock=clock):
        await joined(cluster, "bert-0")
    async with leading(cluster, term=8, clock=clock):
        cluster.bind("bert-2")
        await passed(cluster, clock, 59, "looked")
        assert cluster.phase() != "Placed"
        await passed(cluster, clock, 2, "another")
        await until(lambda: not any(map(cluster.__getitem__, ("bert-0", "bert-1", "bert-2"))))


@pytest.mark.parametrize(
    "last",
    [
        pytest.param(lambda cluster: cluster.bind("bert-2"), id="bound"),
        pytest.param(lambda cluster: cluster.delete("bert-2"), id="deleted"),
    ],
)
async def test_a_gang_is_placed_once_all_its_plans_are_bound(cluster, clock, last):
    async with leading(cluster, clock=clock):
        await joined(cluster, "bert-0")
        cluster.bind("bert-1")
        await passed(cluster, clock, 59)
        assert cluster.phase() != "Placed"
        last(cluster)
        await until(lambda: cluster.phase() == "Placed")
        members = cluster.the_gang()["status"]["members"]
        assert members == ("3/2" if cluster["bert-2"] else "2/2")
        await passed(cluster, clock, 3600, "later")

    assert evicted(cluster) == {}


async def test_a_gang_with_a_member_that_is_always_refused_is_evicted_at_its_deadline(
    cluster, clock
):
    cluster.fail("PATCH", "bert-1", *[(403, "no")] * 1000)
    async with leading(cluster, clock=clock):
        cluster.gang(gpus=2)
        await until(lambda: cluster.allocated("bert-0"))
        cluster.bind("bert-0")
        # The time of the first try does not count.
        await until(lambda: len(cluster.patches("bert-1")) > 1)
        clock.now += 50
        await until(lambda: len(cluster.patches("bert-1")) > 3)
        await passed(cluster, clock, 5)
        assert evicted(cluster) == {}
        await passed(cluster, clock, 6, "another")
        await until(lambda: not cluster["bert-0"] and not cluster["bert-1"])


async def test_a_retry_under_another_plan_does_not_extend_the_deadline(cluster, clock):
    answered = asyncio.Event()
    cluster.policy("gangs: {replacementSeconds: 0}")
    cluster.fail("PATCH", "bert-1", *[(403, "no")] * 1000)
    async with leading(cluster, clock=clock) as leader:
        cluster.gang(gpus=2)
        await until(lambda: cluster.allocated("bert-0"))
        cluster.bind("bert-0")
        # It takes the GPUs that were planned for the other one, which is planned again.
        node = {keys.HOSTNAME: cluster.record("bert-0")["node"]}
        cluster.pod("taker", 6, nodeSelector=node)
        await until(lambda: cluster.allocated("taker"))
        tries = cluster.outcomes["PATCH", "/api/v1/namespaces/team/pods/bert-1"]
        tries.clear()
        tries.append(answered)
        await until(lambda: not tries)
        clock.now += 61
        cluster.pod("sign", 1)
        state = leader.context.informers.state
        await until(lambda: (pod := state.pod(("team", "sign"))) and pod.usage.record)
        assert evicted(cluster) == {}
        tries += [(403, "no")] * 1000
        answered.set()
        await until(lambda: not cluster["bert-0"] and not cluster["bert-1"])


async def test_a_refused_plan_does_not_untrack_the_one_before(cluster, clock):
    async with leading(cluster, clock=clock):
        await placed(cluster, "bert-0")
        cluster.fail("PATCH", "bert-2", *[(403, "no")] * 1000)
        cluster.pod("bert-2", 2, gang="bert")
        await until(lambda: cluster.patches("bert-2"))
        await passed(cluster, clock, 61)
        await until(lambda: not cluster["bert-0"] and not cluster["bert-1"])


async def test_a_plan_whose_check_raised_is_checked_again(cluster, monkeypatch):
    fail_once(monkeypatch, "_try_to_complete")
    async with leading(cluster):
        cluster.gang(gpus=2)
        await until(lambda: cluster.allocated("bert-0", "bert-1"))
        cluster.bind("bert-0", "bert-1")
        await until(lambda: cluster.events("GangPlaced"))


async def test_a_group_whose_restoration_raised_is_restored_again(cluster, clock, monkeypatch):
    async with leading(cluster, clock=clock):
        cluster.gang(gpus=2)
        await until(lambda: cluster.allocated("bert-0", "bert-1"))
    cluster.bind("bert-0")
    cluster.mark_unschedulable("bert-1")
    fail_once(monkeypatch, "_restore")
    async with leading(cluster, term=8, clock=clock) as leader:
        tracker = leader.context.planner._binding_tracker
        await until(lambda: tracker.time_left() is not None)
        await passed(cluster, clock, 61)
        await until(lambda: not cluster["bert-0"] and not cluster["bert-1"])


def fail_once(monkeypatch, name):
    """Let the next call of a method of the tracker raise."""
    method = getattr(BindingTracker, name)
    faults = iter([RuntimeError("a fault of ours")])

    def run(*args, **kwargs):
        if fault := next(faults, None):
            raise fault
        return method(*args, **kwargs)

    monkeypatch.setattr(BindingTracker, name, run)
