"""A leader evicts whole units of lower priority for one that fits nowhere."""

import asyncio
import time
from itertools import count

import pytest
import pytest_asyncio
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs
from support.builders import a_container, a_held_pod, a_pod
from support.servers.leader_harness import NOW, PODS, Clock, reserved_gpus
from support.servers.running_cluster import NONE_YET, OWNER, Running, full, leading
from support.waiting import until

from linkwise.cluster import keys
from linkwise.cluster.scorer_lease import LEASE
from linkwise.planning.gang import victim_choice
from linkwise.planning.placement.preemption.search import find_victims
from linkwise.runtime.process.clock import rfc3339
from linkwise.workloads import operator_keys
from scorer.commit.removal.removals import Removals
from scorer.preemption import nominations
from scorer.preemption.nomination import Nomination
from scorer.preemption.preemptor import Preemptor

BUDGETS = "/apis/policy/v1/namespaces/team/poddisruptionbudgets"


@pytest_asyncio.fixture
async def cluster():
    async with Running() as running:
        yield running


async def test_a_gang_evicts_a_whole_gang_and_gets_its_gpus(cluster):
    async with leading(cluster) as leader:
        await full(cluster)
        cluster.named_gang("high", 1, 4, priority=10)
        await until(lambda: cluster.ending("low-0", "low-1"))
        (nominated,) = cluster.nominations()
        assert nominated["unit"] == ["team", "high", "job-high"]
        assert [sorted(uids) for uids in nominated["victims"]] == [["low-0", "low-1"]]
        await until(lambda: "nominatedNodes" in cluster.status())
        assert (
            reserved_gpus(leader, "nomination"),
            reserved_gpus(leader),
        ) == (4, 0)
        assert "2 pods of 1 gang or single pod of lower priority" in cluster.waits()
        # No autoscaler is asked for nodes meanwhile.
        assert [lacks for _, lacks in leader.context.planner.scale_up_candidates()] == [False]
        assert not cluster.record("high-0")
        cluster.delete("low-0")
        cluster.delete("low-1")
        # The pods that come back wait behind it.
        for i in (0, 1):
            owner = {**OWNER, "name": "low", "uid": "job-low"}
            cluster.pod(f"low-{i}", 4, gang="low", owner=owner, uid=f"low-{i}-again")
        await until(lambda: cluster.allocated("high-0"))
        cluster.bind("high-0")
        await until(lambda: cluster.gang_object("high")["status"]["phase"] == "Placed")
        assert not cluster.record("low-0")
        assert not cluster.record("low-1")
        await until(lambda: cluster.nominations() == [])
        assert reserved_gpus(leader, "nomination") == 0
        assert "nominatedNodes" not in cluster.gang_object("high")["status"]

    assert sorted(cluster.evicted()) == ["low-0", "low-1"]
    (event,) = cluster.events("Preempted")
    assert event["involvedObject"]["name"] == "low"
    assert event["message"].startswith("All 2 pods of low are evicted, since a unit of priority 10")
    assert [each["involvedObject"]["name"] for each in cluster.events("Preempting")] == ["high"]


async def test_a_gang_is_evicted_on_a_counted_node_and_its_gpus_go_to_nobody_else(cluster):
    cluster.remove("/api/v1/nodes/gpu-0")
    cluster.node(resource=keys.NVIDIA_GPU, **{keys.NODE_MODE: "default"})
    ask = {"containers": [a_container({keys.NVIDIA_GPU: "4"})]}
    async with leading(cluster) as leader:
        cluster.named_gang("low", 2, 0, **ask)
        await cluster.run("low-0", "low-1")
        cluster.named_gang("high", 2, 0, priority=10, **ask)
        await until(lambda: cluster.ending("low-0", "low-1"))
        nominated = [{"node": "gpu-0", "gpus": [], "count": 8}]
        await until(lambda: cluster.status().get("nominatedNodes") == nominated)
        assert reserved_gpus(leader, "nomination") == 8
        cluster.delete("low-0")
        cluster.owned("other", 0, **ask)
        await stays(cluster, "other")
        cluster.delete("low-1")
        await until(lambda: cluster.allocated("high-0", "high-1"))
        assert not cluster.record("other")
    assert sorted(cluster.evicted()) == ["low-0", "low-1"]


async def test_gpus_that_become_free_go_to_nobody_else_meanwhile(cluster):
    async with leading(cluster) as leader:
        await full(cluster)
        cluster.named_gang("high", 2, 4, priority=10)
        await until(lambda: cluster.ending("low-0", "low-1"))
        cluster.delete("low-0")
        cluster.owned("other", 4)
        cluster.node("small", 1)
        cluster.owned("sign", 1)
        await until(lambda: cluster.allocated("sign"))
        assert not cluster.record("other")
        assert leader.context
        cluster.delete("low-1")
        await until(lambda: cluster.allocated("high-0", "high-1"))
        assert not cluster.record("other")


async def test_gpus_of_one_member_are_reserved_as_they_become_free(cluster):
    async with leading(cluster):
        await full(cluster)
        cluster.named_gang("high", 1, 8, priority=10)
        await until(lambda: cluster.ending("low-0", "low-1"))
        cluster.delete("low-0")
        cluster.owned("other", 4)
        await stays(cluster, "other")
        cluster.delete("low-1")
        await until(lambda: cluster.allocated("high-0"))


async def test_nothing_is_evicted_for_a_unit_that_fits_since_it_was_refused(cluster):
    cluster.policy("gangs: {preemption: {minRunMinutes: 0, afterSeconds: 9}}")

    class OnceThereIsRoom(Clock):
        """The unit has waited long enough at the moment at which a node joins."""

        def __call__(self):
            has_joined = self.state and "gpu-1" in self.state.snapshot().ledger.nodes
            return NOW + 9 if has_joined else NOW

        state = None

    async def free_capacity():
        for i in count():
            cluster.pod(f"short-{i}", 0, gates=(), nodeName="gpu-0", phase="Running")
            await asyncio.sleep(0.001)
            cluster.delete(f"short-{i}")

    clock = OnceThereIsRoom()
    async with leading(cluster, clock=clock, round=0) as leader:
        clock.state = leader.context.informers.state
        await full(cluster)
        cluster.named_gang("high", 1, 8, priority=10)
        for i in range(40):
            path = f"/api/v1/namespaces/team-{i}/pods/large"
            cluster.put(path, a_held_pod(9, "large", namespace=f"team-{i}", priority=10))
        waiting = leader.context.planner.waiting
        await until(lambda: len(list(waiting())) == 41)
        await until(lambda: all("needs" in why for _, why in waiting()))
        # Each cycle plans one of them, so most of the time its turn is yet to come.
        churn = asyncio.create_task(free_capacity())
        await until(lambda: cluster["short-9"])
        cluster.node("gpu-1")
        await until(lambda: cluster.evicted() or cluster.allocated("high-0"))
        churn.cancel()
    assert cluster.evicted() == []
    assert cluster.record("high-0")["node"] == "gpu-1"


async def test_the_calls_of_a_round_that_fails_later_are_made(cluster, monkeypatch):
    drain, reconcile, due, failed = Removals.drain, Preemptor.reconcile, [], []

    def noted(preemptor):
        calls = reconcile(preemptor)
        due.extend(calls)
        return calls

    def fails_once(removals):
        if due and not failed:
            failed.append(True)
            raise RuntimeError("a fault of ours")
        return drain(removals)

    monkeypatch.setattr(Preemptor, "reconcile", noted)
    monkeypatch.setattr(Removals, "drain", fails_once)
    # Rendering a traceback takes longer than the test.
    with capture_logs():
        async with leading(cluster):
            await full(cluster)
            cluster.named_gang("high", 1, 4, priority=10)
            await until(lambda: cluster.ending("low-0", "low-1"))
    assert failed


async def test_a_single_pod_preempts(cluster):
    async with leading(cluster):
        for i in range(8):
            cluster.owned(f"low-{i}", 1)
        await cluster.run(*(f"low-{i}" for i in range(8)))
        cluster.owned("high", 1, priority=10)
        await until(cluster.evicted)
        (name,) = cluster.evicted()
        cluster.delete(name)
        await until(lambda: cluster.allocated("high"))
    assert cluster.evicted() == [name]


async def stays(cluster, name="high"):
    """Wait until the planner has refused a unit; return the evictions."""
    cluster.node("small", 1)
    cluster.owned("sign", 1)
    await cluster.run("sign")
    assert not cluster.record(name)
    return cluster.evicted()


@pytest.mark.parametrize(
    ("policy", "low", "high"),
    [
        pytest.param(NONE_YET, {}, {}, id="equal priority"),
        pytest.param(NONE_YET, {"priority": 11}, {"priority": 10}, id="higher priority"),
        pytest.param(
            NONE_YET, {}, {"priority": 10, "preemptionPolicy": "Never"}, id="policy of the class"
        ),
        pytest.param(
            "gangs: {preemption: {mode: never, minRunMinutes: 0}}", {}, {"priority": 10}, id="never"
        ),
        pytest.param("gangs: {preemption: {minRunMinutes: 5}}", {}, {"priority": 10}, id="young"),
        pytest.param(
            "gangs: {preemption: {minRunMinutes: 0, afterSeconds: 9}}",
            {},
            {"priority": 10},
            id="too early",
        ),
        pytest.param(
            NONE_YET, {}, {"priority": 10, "labels": {keys.KUEUE_LABELS[0]: "q"}}, id="Kueue's"
        ),
        pytest.param(
            NONE_YET, {"labels": {keys.KUEUE_LABELS[1]: "q"}}, {"priority": 10}, id="of Kueue"
        ),
    ],
)
async def test_nothing_is_evicted(cluster, policy, low, high):
    cluster.policy(policy)
    async with leading(cluster):
        cluster.owned("low", 8, **low)
        await cluster.run("low")
        cluster.owned("high", 8, **high)
        assert await stays(cluster) == []


OTHERS = "gangs: {preemption: {minRunMinutes: 0, others: lowerPriority}}"
EIGHT = {"limits": {keys.NVIDIA_GPU: 8}}


def of_others(cluster, name, gpus, **pod):
    """Create a running pod whose GPUs NVIDIA's plugin has chosen."""
    limits = {"limits": {keys.NVIDIA_GPU: gpus}}
    containers = [{"name": "c", "resources": limits}]
    bound = {"nodeName": "gpu-0", "gates": (), "phase": "Running", "owner": OWNER}
    cluster.pod(name, 0, containers=containers, **bound | pod)


def of_count(cluster, name, **pod):
    """Create a gated pod that needs all GPUs of a node, and runs where NVIDIA's plugin chooses."""
    containers = [{"name": "c", "resources": EIGHT}]
    cluster.pod(name, 0, containers=containers, **{"owner": OWNER, "priority": 10} | pod)


def counted(cluster):
    """Let NVIDIA's plugin choose the GPUs of the node."""
    cluster.node(resource=keys.NVIDIA_GPU, **{keys.NODE_MODE: "default"})


async def test_pods_of_others_are_evicted_by_policy_and_the_unit_gets_their_gpus(cluster):
    counted(cluster)
    cluster.policy(OTHERS)
    for name in ("a", "b"):
        of_others(cluster, name, 4)
    registry = CollectorRegistry()
    async with leading(cluster, registry=registry):
        of_count(cluster, "high")
        await until(lambda: cluster.ending("a", "b"))
        assert cluster["high"]["status"]["nominatedNodeName"] == "gpu-0"
        assert [sorted(each["victims"]) for each in cluster.nominations()] == [[["a"], ["b"]]]
        cluster.delete("a")
        cluster.delete("b")
        await until(lambda: cluster.allocated("high"))
        cluster.bind("high")
        await until(lambda: cluster.nominations() == [])
    assert sorted(cluster.evicted()) == ["a", "b"]
    texts = [event["message"] for event in cluster.events("Preempted")]
    assert texts == ["Its only pod is evicted, since a unit of priority 10 needs their GPUs"] * 2
    (event,) = cluster.events("Preempting")
    assert event["message"].startswith("2 pods of 2 gangs and single pods of lower priority")
    evicted = {"reason": "preempted"}
    assert registry.get_sample_value("linkwise_evicted_pods_total", evicted) == 2


@pytest.mark.parametrize(
    ("policy", "fields"),
    [
        pytest.param(NONE_YET, {}, id="the default"),
        pytest.param(OTHERS, {"priority": 10}, id="equal priority"),
        pytest.param(OTHERS, {"owner": None}, id="no owner"),
        pytest.param(OTHERS, {"owner": {**OWNER, "kind": "DaemonSet"}}, id="DaemonSet"),
        pytest.param(OTHERS, {"annotations": {"pod-group-name": "g"}}, id="a gang of KAI"),
        pytest.param(
            "gangs: {preemption: {mode: never, minRunMinutes: 0, others: lowerPriority}}",
            {},
            id="no preemption at all",
        ),
    ],
)
async def test_pods_of_others_stay(cluster, policy, fields):
    counted(cluster)
    cluster.policy(policy)
    of_others(cluster, "low", 8, **fields)
    async with leading(cluster):
        of_count(cluster, "high")
        assert await stays(cluster) == []


async def test_nothing_is_evicted_before_the_pods_of_the_unit_are_nominated(cluster):
    """Else kube-scheduler would give the GPUs to the pods that are created again."""
    counted(cluster)
    cluster.policy(OTHERS)
    of_others(cluster, "low", 8)
    refused = [(403, "no right")] * 3
    cluster.fail("PATCH", "high-0/status", *refused)
    async with leading(cluster):
        job = {**OWNER, "name": "high", "uid": "job-high"}
        of_count(cluster, "high-0", gang="high", size=1, owner=job)
        await until(lambda: "manifests/preemption has the rights" in cluster.waits())
        await until(lambda: cluster.ending("low"))
    writes = [(method, path.rpartition("/pods/")[2]) for method, path, _ in cluster.writes]
    nomination, eviction = ("PATCH", "high-0/status"), ("POST", "low/eviction")
    assert writes.index(eviction) > writes.index(nomination)
    assert writes[: writes.index(eviction)].count(nomination) == len(refused) + 1


async def test_a_unit_for_which_others_are_evicted_in_vain_is_nominated_no_more(cluster):
    counted(cluster)
    cluster.policy(OTHERS)
    of_others(cluster, "low", 8)
    clock = Clock()
    async with leading(cluster, clock=clock):
        of_count(cluster, "high")
        await until(lambda: cluster.ending("low"))
        clock.now += 601
        cluster.node("another", 1)
        await until(lambda: "nominatedNodeName" not in cluster["high"]["status"])


@pytest.mark.parametrize("policy", [NONE_YET, OTHERS], ids=["the default", "others"])
async def test_a_past_nomination_is_removed_by_the_next_leader(cluster, policy):
    cluster.policy(policy)
    cluster.owned("high", 8)
    high = cluster["high"]
    high["status"]["nominatedNodeName"] = "gone"
    cluster.put(f"{PODS.replace('pods', 'namespaces/team/pods')}/high", high)
    cluster.remove("/api/v1/nodes/gpu-0")
    async with leading(cluster):
        await until(lambda: "nominatedNodeName" not in cluster["high"]["status"])


@pytest.mark.parametrize("policy", [NONE_YET, OTHERS], ids=["the default", "others"])
async def test_units_of_linkwise_are_nominated_where_others_may_be_evicted(cluster, policy):
    """There, pods of others could take the GPUs that units of Linkwise leave."""
    counted(cluster)
    cluster.policy(policy)
    async with leading(cluster):
        of_count(cluster, "low")
        await cluster.run("low")
        of_count(cluster, "high", priority=11)
        await until(lambda: cluster.ending("low"))
        assert ("nominatedNodeName" in cluster["high"]["status"]) == (policy == OTHERS)


async def test_pods_without_an_owner_are_not_evicted(cluster):
    async with leading(cluster):
        cluster.pod("low", 8)
        await cluster.run("low")
        cluster.owned("high", 8, priority=10)
        assert await stays(cluster) == []


async def test_a_unit_preempts_once_it_has_waited_long_enough(cluster):
    cluster.policy("gangs: {preemption: {minRunMinutes: 0, afterSeconds: 9}}")
    clock = Clock()
    async with leading(cluster, clock=clock):
        await full(cluster)
        cluster.named_gang("high", 1, 8, priority=10)
        assert await stays(cluster, "high-0") == []
        clock.now += 9
        cluster.owned("again", 1)
        await until(lambda: cluster.ending("low-0", "low-1"))


async def test_budgets_that_forbid_it_let_no_member_be_evicted(cluster):
    budget = {
        "metadata": {"name": "all"},
        "spec": {"selector": {}},
        "status": {"disruptionsAllowed": 1},
    }
    cluster.put(f"{BUDGETS}/all", budget)
    async with leading(cluster):
        await full(cluster)
        cluster.named_gang("high", 1, 8, priority=10)
        await until(lambda: "disruption budgets do not allow" in cluster.waits())
        assert cluster.evicted() == []


async def test_another_unit_is_evicted_than_one_that_a_budget_protects(cluster):
    budget = {
        "metadata": {"name": "one"},
        "spec": {"selector": {"matchLabels": {"app": "one"}}},
        "status": {"disruptionsAllowed": 0},
    }
    cluster.put(f"{BUDGETS}/one", budget)
    async with leading(cluster):
        cluster.owned("guarded", 4, labels={"app": "one"})
        cluster.owned("free", 4)
        await cluster.run("guarded", "free")
        cluster.owned("high", 4, priority=10)
        await until(cluster.evicted)
        assert cluster.evicted() == ["free"]


@pytest.mark.parametrize(
    ("refusal", "why"),
    [
        ((429, "budget"), "1 could not be evicted yet: a disruption budget does not allow it now"),
        ((500, "pod team/low-1"), "1 could not be evicted yet: the API server refused it (status"),
    ],
)
async def test_a_refused_eviction_is_repeated(cluster, refusal, why):
    cluster.fail("POST", "low-1/eviction", refusal, refusal)
    async with leading(cluster):
        await full(cluster)
        cluster.named_gang("high", 1, 8, priority=10)
        await until(lambda: why in cluster.waits())
        await until(lambda: cluster.ending("low-0", "low-1"))
        cluster.delete("low-0")
        cluster.delete("low-1")
        await until(lambda: cluster.allocated("high-0"))


@pytest.mark.parametrize("refusal", [(429, "budget"), (500, "broken")], ids=["429", "500"])
async def test_gangs_end_as_a_whole_although_each_third_eviction_is_refused(cluster, refusal):
    cluster.node("gpu-1")
    tries = count(1)

    def refuse(_method, path, _body):
        is_refused = path.endswith("/eviction") and next(tries) % 3 == 0
        return (*refusal, "refused") if is_refused else None

    cluster.refuse = refuse
    async with leading(cluster):
        for gang in ("low", "same"):
            cluster.named_gang(gang, 8, 1)
            await cluster.run(*(f"{gang}-{i}" for i in range(8)))
        cluster.named_gang("high", 1, 8, priority=10)

        def ended():
            names = [f"{gang}-{i}" for gang in ("low", "same") for i in range(8)]
            return sorted(name for name in names if cluster.ending(name))

        await until(lambda: len(ended()) == 8)
        evicted = ended()
        for name in evicted:
            cluster.delete(name)
        await until(lambda: cluster.allocated("high-0"))
    assert len({name.partition("-")[0] for name in evicted}) == 1
    assert {*cluster.evicted()} == {*evicted}


async def test_the_owner_of_an_evicted_gang_is_deleted_meanwhile(cluster):
    """Its pods are never made again, and are gone at once."""
    cluster.fail("POST", "low-1/eviction", *[(429, "budget")] * 99)
    cluster.node("gpu-1")
    async with leading(cluster):
        await full(cluster)
        cluster.named_gang("next", 2, 4, priority=1)
        await cluster.run("next-0", "next-1")
        cluster.named_gang("high", 1, 8, priority=10)
        await until(lambda: cluster.ending("low-0"))
        cluster.delete("low-0")
        cluster.delete("low-1")
        await until(lambda: cluster.allocated("high-0"))
        await until(lambda: cluster.nominations() == [])
    assert {*cluster.evicted()} == {"low-0", "low-1"}


async def test_the_reservation_ends_if_victims_do_not_and_no_others_are_evicted(cluster):
    """Their finalizers are never removed."""
    cluster.node("gpu-1")
    clock = Clock()
    async with leading(cluster, clock=clock):
        await full(cluster)
        cluster.named_gang("next", 2, 4, priority=1)
        await cluster.run("next-0", "next-1")
        cluster.named_gang("high", 1, 8, priority=10)
        await until(lambda: cluster.ending("low-0", "low-1"))
        await stays(cluster, "high-0")
        clock.now += 61
        cluster.node("another", 1)
        await until(lambda: "2 of them are still terminating, for longer" in cluster.waits())
        assert len(cluster.nominations()) == 1
        clock.now += 540
        cluster.node("yet-another", 1)
        await until(lambda: "did not become free in time" in cluster.waits())
        cluster.owned("again", 1)
        await until(lambda: cluster.allocated("again"))
        assert "nominatedNodes" not in cluster.gang_object("high")["status"]
    # The pod of `stays` may count as not bound in time.
    assert {*cluster.evicted()} - {"sign"} == {"low-0", "low-1"}


async def test_a_unit_waits_for_victims_that_end_late_and_gets_their_gpus(cluster):
    cluster.node("gpu-1")
    clock = Clock()
    async with leading(cluster, clock=clock):
        await full(cluster)
        cluster.named_gang("next", 2, 4, priority=1)
        await cluster.run("next-0", "next-1")
        cluster.named_gang("high", 1, 8, priority=10)
        await until(lambda: cluster.ending("low-0", "low-1"))
        for _ in range(3):
            clock.now += 95
            cluster.policy(NONE_YET)
            await until(lambda: "are still terminating, for longer" in cluster.waits())
        cluster.delete("low-0")
        cluster.delete("low-1")
        await until(lambda: cluster.allocated("high-0"))
    assert {*cluster.evicted()} == {"low-0", "low-1"}


LACKING = (
    "0/1 nodes are available: 1 Insufficient rdma/hca. preemption: 0/1 nodes are available: "
    "1 No preemption victims found for incoming pod."
)


@pytest.mark.parametrize("changed", ["the node", "the unit"])
async def test_a_preemption_after_which_the_unit_was_not_bound_is_not_repeated(cluster, changed):
    clock = Clock()

    async def fails(name):
        """Evict the low gang for a pod that is not bound then, and is created again."""
        await until(lambda: cluster.ending("low-0", "low-1"))
        cluster.delete("low-0")
        cluster.delete("low-1")
        await until(lambda: cluster.allocated(name))
        cluster.mark_unschedulable(name, message=LACKING)
        await until(lambda: [one for one in cluster.events("WaitingForGPUs") if "rdma" in str(one)])
        clock.now += 5
        cluster.policy(NONE_YET)
        await until(lambda: cluster.ending(name))
        cluster.delete(name)

    def waits(leader):
        return "; ".join(reason for _, reason in leader.context.planner.waiting())

    async with leading(cluster, clock=clock) as leader:
        await full(cluster)
        cluster.owned("high", 8, priority=10)
        await fails("high")
        for i in (0, 1):
            cluster.pod(f"low-{i}", 4, gang="low", owner=LOW, uid=f"low-{i}-again")
        await cluster.run("low-0", "low-1")
        cluster.owned("next", 8, priority=10)
        # The exclusion of the node ends, and nobody is evicted there for the replacement.
        for _ in range(3):
            clock.now += 181
            cluster.policy(NONE_YET)
            await until(lambda: "nobody is evicted for it on gpu-0" in waits(leader))
        assert not cluster.ending("low-0")
    async with leading(cluster, term=8, clock=clock) as leader:
        await until(lambda: "nobody is evicted for it on gpu-0" in waits(leader))
        assert not cluster.ending("low-0")
        if changed == "the node":
            cluster.node("gpu-0", **{"example.com/fixed": "true"})
        else:
            cluster.owned("other", 4, priority=10)
        await until(lambda: cluster.ending("low-0", "low-1"))


LOW = {**OWNER, "name": "low", "uid": "job-low"}


def create_high(cluster, *, is_gang):
    """Create a unit of a high priority that needs a whole node; return its pod."""
    if is_gang:
        cluster.named_gang("high", 1, 8, priority=10)
        return "high-0"
    cluster.owned("high", 8, priority=10)
    return "high"


@pytest.mark.parametrize("is_gang", [True, False], ids=["gang", "single pod"])
async def test_the_next_leader_evicts_the_same_pods_and_no_others(cluster, is_gang):
    cluster.node("gpu-1")
    for name in ("low-1", "same-1"):
        cluster.fail("POST", f"{name}/eviction", *[(429, "budget")] * 99)
    async with leading(cluster):
        await full(cluster)
        cluster.named_gang("same", 2, 4)
        await cluster.run("same-0", "same-1")
        high = create_high(cluster, is_gang=is_gang)
        await until(lambda: cluster.ending("low-0") or cluster.ending("same-0"))
        # What is free then belongs to the unit, under the next leader as well.
        first = {"low-0", "low-1"} if cluster.ending("low-0") else {"same-0", "same-1"}
        cluster.delete(min(first))
        cluster.owned("other", 4)
        gang = min(first).partition("-")[0]
        job = {**OWNER, "name": gang, "uid": f"job-{gang}"}
        cluster.pod(min(first), 4, gang=gang, owner=job, uid="again")
    cluster.outcomes.clear()
    async with leading(cluster, term=8):
        await until(lambda: cluster.ending(max(first)))
        assert await stays(cluster, high)
        assert not cluster.record("other")
        assert not cluster.record(min(first))
        cluster.delete(max(first))
        await until(lambda: cluster.allocated(high))
        await until(lambda: cluster.nominations() == [])
    assert set(cluster.evicted()) == first


async def test_the_next_leader_evicts_the_rest_of_a_gang_although_the_unit_is_gone(cluster):
    cluster.fail("POST", "low-1/eviction", *[(429, "budget")] * 99)
    async with leading(cluster):
        await full(cluster)
        cluster.named_gang("high", 1, 8, priority=10)
        await until(lambda: cluster.ending("low-0"))
    cluster.delete("high-0")
    cluster.delete("low-0")
    cluster.outcomes.clear()
    async with leading(cluster, term=8):
        await until(lambda: cluster.ending("low-1"))
        await until(lambda: cluster.nominations() == [])


async def test_the_next_leader_evicts_nobody_for_a_unit_that_is_gone(cluster):
    for name in ("low-0", "low-1"):
        cluster.fail("POST", f"{name}/eviction", *[(429, "budget")] * 99)
    async with leading(cluster):
        await full(cluster)
        cluster.named_gang("high", 1, 8, priority=10)
        await until(cluster.evicted)
    cluster.delete("high-0")
    cluster.outcomes.clear()
    tried = cluster.evicted()
    async with leading(cluster, term=8):
        cluster.node("small", 1)
        cluster.owned("sign", 1)
        await cluster.run("sign")
        await until(lambda: cluster.nominations() == [])
    assert cluster.evicted() == tried


async def test_a_past_leader_nominates_and_evicts_nobody(cluster):
    """It was stopped while it searched, and goes on once the next one leads."""
    async with leading(cluster) as leader:
        await full(cluster)
        cluster.take_lease(8)
        cluster.named_gang("high", 1, 8, priority=10)
        await until(leader.task.done)
    assert cluster.evicted() == []
    assert cluster.nominations() == []


def has_started(cluster, gang, seconds):
    """Let the pods of a gang have started so many seconds ago."""
    for i in (0, 1):
        status = {"phase": "Running", "startTime": rfc3339(NOW - seconds)}
        path = f"/api/v1/namespaces/team/pods/{gang}-{i}"
        cluster.put(path, {**cluster[f"{gang}-{i}"], "status": status})


STEPS = {
    "nothing": (0, False, "same"),
    "the nomination": (1, False, "low"),
    "one eviction": (2, False, "low"),
    "all evictions": (3, False, "low"),
    "the nomination, of a unit that is deleted then": (1, True, None),
    "one eviction, for a unit that is deleted then": (2, True, "low"),
}
"""What the first leader does before it is stopped; the only gang of which pods are evicted."""


@pytest.mark.parametrize(("steps", "is_gone", "gang"), STEPS.values(), ids=STEPS)
async def test_a_leader_that_is_stopped_and_goes_on_and_the_next_one_evict_one_set(
    cluster, steps, is_gone, gang
):
    """The next one would choose the other gang, which has lost less time by then."""
    cluster.node("gpu-1")
    cluster.refuse = lambda _, __, body: cluster.fence(body) if keys.TERM in str(body) else None
    async with leading(cluster):
        for name in ("low", "same"):
            cluster.named_gang(name, 2, 4)
            await cluster.run(f"{name}-0", f"{name}-1")
        has_started(cluster, "low", 100)
        has_started(cluster, "same", 500)
        cluster.stops_after = steps
        cluster.named_gang("high", 1, 8, priority=10)
        begun = 2 if steps else 1
        await until(lambda: len(cluster.accepted) + len(cluster.late) == begun)
        has_started(cluster, "same", 0)
        if is_gone:
            cluster.delete("high-0")
        async with leading(cluster, term=8):
            cluster.goes_on.set()
            expected = [f"{gang}-0", f"{gang}-1"] if gang else []
            await until(lambda: cluster.ending(*expected))
            for name in expected:
                cluster.delete(name)
            await until(lambda: is_gone or cluster.allocated("high-0"))
            await until(lambda: not cluster.nominations() and not cluster.late)
    assert sorted(name for _, name in cluster.accepted) == expected
    by_first = ["7"] * max(0, steps - 1)
    by_next = ["8"] * (len(expected) - len(by_first))
    assert [term for term, _ in cluster.accepted] == by_first + by_next
    assert is_gone or cluster["high-0"]["metadata"]["annotations"][keys.TERM] == "8"


async def test_a_record_that_cannot_be_read_is_replaced(cluster):
    async with leading(cluster):
        await full(cluster)
    annotations = {keys.NOMINATIONS: "[{"}
    cluster.put(LEASE, {"metadata": {"annotations": annotations}, "spec": {}})
    async with leading(cluster, term=8):
        cluster.named_gang("high", 1, 8, priority=10)
        await until(lambda: cluster.ending("low-0", "low-1"))
        assert len(cluster.nominations()) == 1


async def test_nothing_is_evicted_if_the_nomination_cannot_be_written(cluster):
    def refuse(_method, path, _body):
        return (403, "no", "no") if path == LEASE else None

    cluster.refuse = refuse
    async with leading(cluster):
        await full(cluster)
        cluster.named_gang("high", 1, 8, priority=10)
        await until(lambda: "it could not be recorded what is evicted" in cluster.waits())
    assert cluster.evicted() == []


async def test_a_gang_of_which_a_part_was_evicted_is_evicted_as_a_whole(cluster):
    """The unit is deleted before the API server accepts all evictions."""
    cluster.fail("POST", "low-1/eviction", (429, "budget"))
    async with leading(cluster):
        await full(cluster)
        cluster.named_gang("high", 1, 8, priority=10)
        await until(lambda: cluster.ending("low-0"))
        cluster.delete("high-0")
        await until(lambda: cluster.ending("low-0", "low-1"))


ON_FAULT = "gangs: {onFault: evict, onFaultSeconds: 1, preemption: {minRunMinutes: 0}}"


def set_unhealthy(cluster, name, *, node="gpu-0"):
    """Let a GPU of a pod be unhealthy."""
    folder = f"/api/v1/namespaces/{keys.TOPOLOGY_NAMESPACE}/configmaps"
    data = {keys.UNHEALTHY_KEY: str(cluster.record(name)["gpus"][0]["i"])}
    path = f"{folder}/{keys.UNHEALTHY_NAME_PREFIX}{node}"
    cluster.put(path, {"metadata": {"namespace": keys.TOPOLOGY_NAMESPACE}, "data": data})


def health(cluster, gang):
    conditions = cluster.gang_object(gang)["status"].get("conditions", [])
    return next((each["message"] for each in conditions if each["type"] == "GPUsHealthy"), "")


async def test_a_gang_that_is_moved_off_a_fault_is_not_preempted(cluster):
    cluster.policy(ON_FAULT)
    cluster.fail("POST", "low-1/eviction", *[(429, "budget")] * 99)
    clock = Clock()
    async with leading(cluster, clock=clock):
        await full(cluster)
        await until(lambda: cluster.gang_object("low")["status"]["phase"] == "Placed")
        set_unhealthy(cluster, "low-0")
        await until(lambda: health(cluster, "low"))
        clock.now += 1
        cluster.owned("wakes", 100)
        await until(lambda: cluster.ending("low-0"))
        cluster.named_gang("high", 1, 4, priority=10)
        await until(lambda: "no units of lower priority may be evicted" in cluster.waits())
    assert cluster.nominations() == []


async def test_a_gang_that_is_preempted_is_not_moved_off_a_fault(cluster):
    cluster.policy(ON_FAULT)
    cluster.fail("POST", "low-1/eviction", *[(429, "budget")] * 99)
    clock = Clock()
    async with leading(cluster, clock=clock):
        await full(cluster)
        cluster.named_gang("high", 1, 8, priority=10)
        await until(lambda: cluster.ending("low-0"))
        set_unhealthy(cluster, "low-1")
        await until(lambda: health(cluster, "low"))
        clock.now += 2
        cluster.owned("wakes", 100)
        why = "it is being evicted already"
        await until(lambda: why in health(cluster, "low"))
        assert keys.MOVED not in cluster.gang_object("low")["metadata"].get("annotations", {})
        cluster.outcomes.clear()
        await until(lambda: cluster.ending("low-1"))


async def test_unhealthy_gpus_are_no_gain(cluster):
    """The pod of the lowest priority has one."""
    cluster.node("gpu-1")
    async with leading(cluster) as leader:
        for name, priority in (("sick", 1), ("well", 2)):
            cluster.owned(name, 8, priority=priority)
            await cluster.run(name)
        node = cluster.record("sick")["node"]
        set_unhealthy(cluster, "sick", node=node)
        state = leader.context.informers.state
        await until(lambda: not all(card.healthy for card in state.node(node).cards))
        cluster.owned("high", 8, priority=10)
        await until(cluster.evicted)
        assert cluster.evicted() == ["well"]


ELASTIC = {
    "apiVersion": "kubeflow.org/v1",
    "kind": "PyTorchJob",
    "metadata": {"uid": "job-low"},
    "spec": {
        "elasticPolicy": {"minReplicas": 2},
        "pytorchReplicaSpecs": {
            "Worker": {
                "replicas": 4,
                "template": {
                    "spec": {"containers": [{"resources": {"limits": {keys.GPU_WHOLE: 2}}}]}
                },
            }
        },
    },
}


async def run_elastic(cluster):
    """Fill the node with a gang of four that needs two."""
    cluster.put("/apis/kubeflow.org/v1/namespaces/team/pytorchjobs/low", ELASTIC)
    labels = {
        operator_keys.OPERATOR_NAME: "pytorchjob-controller",
        operator_keys.JOB_NAME: "low",
        operator_keys.REPLICA_TYPE: "worker",
    }
    job = {key: ELASTIC[key] for key in ("apiVersion", "kind")}
    cluster.gang("low", 4, 2, owner=job | {"name": "low", "uid": "job-low"}, labels=labels)
    await cluster.run(*(f"low-{i}" for i in range(4)))


@pytest.mark.parametrize(
    ("gpus", "evicted", "text"),
    [
        (2, ["low-3"], "1 of the 4 pods of elastic low is evicted"),
        (4, ["low-2", "low-3"], "2 of the 4 pods of elastic low are evicted"),
        (8, ["low-0", "low-1", "low-2", "low-3"], "All 4 pods of low are evicted"),
    ],
)
async def test_an_elastic_gang_keeps_its_minimum_where_that_does(cluster, gpus, evicted, text):
    async with leading(cluster):
        await run_elastic(cluster)
        cluster.named_gang("high", 1, gpus, priority=10)
        await until(lambda: cluster.ending(*evicted))
        for name in evicted:
            cluster.delete(name)
        await until(lambda: cluster.allocated("high-0"))
    assert sorted(cluster.evicted()) == evicted
    (event,) = cluster.events("Preempted")
    assert event["message"].startswith(text)


def start(cluster, *names):
    """Let pods have started more than five minutes ago."""
    for name in names:
        path = f"/api/v1/namespaces/team/pods/{name}"
        state = {"phase": "Running", "startTime": rfc3339(NOW - 301)}
        cluster.put(path, {**cluster[name], "status": state})


async def test_an_elastic_gang_loses_members_that_have_run_for_long_enough(cluster):
    cluster.policy("gangs: {preemption: {minRunMinutes: 5}}")
    async with leading(cluster):
        await run_elastic(cluster)
        start(cluster, "low-0", "low-1", "low-2")
        cluster.named_gang("high", 1, 2, priority=10)
        await until(lambda: cluster.ending("low-2"))
        cluster.delete("low-2")
        await until(lambda: cluster.allocated("high-0"))
    assert cluster.evicted() == ["low-2"]


async def test_pods_that_have_run_long_enough_are_evicted(cluster):
    cluster.policy("gangs: {preemption: {minRunMinutes: 5}}")
    async with leading(cluster):
        await full(cluster)
        start(cluster, "low-0", "low-1")
        cluster.named_gang("high", 1, 8, priority=10)
        await until(lambda: cluster.ending("low-0", "low-1"))


async def test_units_for_which_nothing_is_found_are_searched_for_once(cluster):
    with capture_logs() as logs:
        async with leading(cluster):
            cluster.pod("low", 8)
            await cluster.run("low")
            for i in range(9):
                cluster.owned(f"high-{i}", 8, priority=10)
            await until(lambda: len(searches(logs)) == 9)
            await stays(cluster, "high-0")
    assert len(set(searches(logs))) == 9


def searches(logs):
    return [line["unit"] for line in logs if line["event"] == "Nothing to preempt"]


async def test_a_set_that_is_too_large_to_be_recorded_is_not_evicted(cluster, monkeypatch):
    monkeypatch.setattr(nominations, "LONGEST", 100)
    async with leading(cluster):
        await full(cluster)
        cluster.named_gang("high", 1, 8, priority=10)
        await until(lambda: "more pods would have to be evicted at once than" in cluster.waits())
    assert cluster.evicted() == []


async def test_a_search_may_take_longer_than_a_plan(cluster, monkeypatch):
    def slowly(*args):
        time.sleep(0.3)
        return find_victims(*args)

    monkeypatch.setattr(victim_choice, "find_victims", slowly)
    async with leading(cluster, first_limit=0.2):
        await full(cluster)
        cluster.named_gang("high", 1, 8, priority=10)
        await until(lambda: cluster.ending("low-0", "low-1"))


async def test_events_and_reasons_name_nothing_of_another_namespace(cluster):
    async with leading(cluster):
        await full(cluster)
        path = "/api/v1/namespaces/other/pods/high"
        raw = cluster.owned("high", 8, priority=10)
        cluster.delete("high")
        cluster.put(path, {**raw, "metadata": {**raw["metadata"], "uid": "other-high"}})
        await until(lambda: cluster.events("Preempted") and cluster.events("Preempting"))
    (ours,), (theirs,) = cluster.events("Preempted"), cluster.events("Preempting")
    assert "other" not in ours["message"]
    assert "low-" not in theirs["message"]
    assert "team" not in theirs["message"]


async def test_a_gang_has_the_priority_of_its_highest_member(cluster):
    async with leading(cluster):
        owner = {**OWNER, "uid": "job-low"}
        for name, priority in (("low-0", 1), ("low-1", 10)):
            cluster.pod(name, 4, gang="low", owner=owner, priority=priority)
        await cluster.run("low-0", "low-1")
        cluster.named_gang("high", 1, 8, priority=10)
        assert await stays(cluster, "high-0") == []


@pytest.mark.parametrize("has_kueue", [True, False], ids=["with Kueue", "without Kueue"])
async def test_a_label_of_kueue_keeps_a_pod_from_preemption_where_kueue_is_installed(
    cluster, has_kueue
):
    if has_kueue:
        cluster.apis["/apis/kueue.x-k8s.io"] = ()
    async with leading(cluster):
        cluster.owned("low", 8, labels={"kueue.x-k8s.io/queue-name": "mine"})
        await cluster.run("low")
        cluster.owned("high", 8, priority=10)
        if has_kueue:
            assert await stays(cluster) == []
        else:
            await until(lambda: cluster.ending("low"))


async def test_a_unit_gets_no_gpus_that_kube_scheduler_has_cleared_for_another_pod(cluster):
    """Else kube-scheduler would evict a second set of pods for it."""
    raw = a_pod({keys.GPU_WHOLE: 8}, name="next", priority=10)
    raw["metadata"] |= {"namespace": "team", "uid": "next"}
    nominated = raw | {"status": {"nominatedNodeName": "gpu-0"}}
    cluster.put("/api/v1/namespaces/team/pods/next", nominated)
    async with leading(cluster):
        cluster.owned("same", 2, priority=10)
        assert await stays(cluster, "same") == []
        cluster.owned("higher", 1, priority=11)
        await cluster.run("higher")
        cluster.delete("next")
        await cluster.run("same")


async def test_one_pod_of_a_high_class_takes_no_gpus_for_a_gang_of_a_low_one(cluster):
    async with leading(cluster):
        cluster.named_gang("low", 1, 8, priority=1)
        await cluster.run("low-0")
        owner = {**OWNER, "uid": "job-mixed"}
        for name, priority in (("mixed-0", 10), ("mixed-1", 1)):
            cluster.pod(name, 4, gang="mixed", owner=owner, priority=priority)
        assert await stays(cluster, "mixed-0") == []


async def test_gangs_of_one_name_are_distinguished(cluster):
    """Only the gang of the lower priority is evicted."""
    async with leading(cluster):
        for i, priority in enumerate((5, 1)):
            owner = {**OWNER, "uid": f"job-{i}"}
            cluster.pod(f"run-{i}", 4, gang="same", size=1, owner=owner, priority=priority)
        await cluster.run("run-0", "run-1")
        cluster.owned("high", 4, priority=10)
        await until(cluster.evicted)
        assert cluster.evicted() == ["run-1"]


async def test_two_units_take_different_victims(cluster):
    """Neither waits for what the other is to have."""
    async with leading(cluster):
        for name in ("low-0", "low-1"):
            cluster.owned(name, 4)
        await cluster.run("low-0", "low-1")
        cluster.owned("high-0", 4, priority=10)
        cluster.owned("high-1", 4, priority=10)
        await until(lambda: cluster.ending("low-0", "low-1"))
        assert sorted(cluster.evicted()) == ["low-0", "low-1"]
        cluster.delete("low-0")
        cluster.delete("low-1")
        await until(lambda: cluster.allocated("high-0", "high-1"))


async def live(cluster):
    """Bind pods, end those that are being deleted, and create these again, as controllers do."""
    uids = count(1)
    while True:
        for pod in cluster.all(PODS):
            name = pod["metadata"]["name"]
            if pod["metadata"].get("deletionTimestamp"):
                cluster.delete(name)
                gang = name.rpartition("-")[0]
                owner = pod["metadata"]["ownerReferences"][0]
                priority, uid = pod["spec"].get("priority"), f"{name}-{next(uids)}"
                cluster.pod(name, 4, gang=gang, owner=owner, priority=priority, uid=uid)
            elif not pod["spec"].get("nodeName") and not pod["spec"].get("schedulingGates"):
                cluster.bind(name)
        await asyncio.sleep(0.01)


def bound(cluster, gang):
    return sum(bool(cluster[f"{gang}-{i}"]["spec"].get("nodeName")) for i in (0, 1))


async def test_gangs_of_three_classes_are_placed_by_priority_and_whole(cluster):
    """All nodes are full when the highest arrive."""
    for i in range(1, 6):
        cluster.node(f"gpu-{i}")
    gangs = {**{f"night-{i}": 1 for i in range(5)}, **{f"day-{i}": 5 for i in range(3)}}
    async with leading(cluster):
        running = asyncio.create_task(live(cluster))
        for name, priority in gangs.items():
            cluster.named_gang(name, 2, 4, priority=priority)
        await until(lambda: sum(bound(cluster, name) for name in gangs) == 12)
        high = {f"high-{i}": 10 for i in range(4)}
        for name, priority in high.items():
            cluster.named_gang(name, 2, 4, priority=priority)
        await until(lambda: all(bound(cluster, name) == 2 for name in high))

        def left():
            return sorted(name[:3] for name in gangs for _ in range(bound(cluster, name)))

        await until(lambda: left() == ["day"] * 4)
        running.cancel()
        evicted = {name.rpartition("-")[0] for name in cluster.evicted()}
    assert sorted(cluster.evicted()) == sorted(
        name for gang in evicted for name in [f"{gang}-0", f"{gang}-1"] * times(cluster, gang)
    )


def times(cluster, gang):
    """Return how often the first pod of a gang was evicted."""
    return cluster.evicted().count(f"{gang}-0")


async def test_a_report_about_one_unit_that_raises_ends_nothing(cluster, monkeypatch):
    def raises(*_):
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(Nomination, "summary", raises)
    with capture_logs():
        async with leading(cluster) as leader:
            await full(cluster)
            cluster.named_gang("high", 1, 4, priority=10)
            await until(lambda: cluster.nominations() or leader.task.done())
            cluster.node("small", 1)
            cluster.owned("sign", 1)
            await until(lambda: cluster.allocated("sign") or leader.task.done())
            assert not leader.task.done()
