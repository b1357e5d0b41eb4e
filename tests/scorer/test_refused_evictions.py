"""A leader takes a unit off its GPUs as a whole, or not at all, whatever the API server refuses."""

import json

import pytest
import pytest_asyncio
from support.servers.leader_harness import NOW, Clock
from support.servers.running_cluster import OWNER, Running, full, leading
from support.waiting import until

from linkwise.cluster import keys
from linkwise.cluster.gang import GangKey
from linkwise.runtime.process.clock import rfc3339
from scorer.commit.removal import removal_state
from scorer.commit.removal.removal_state import Step
from scorer.commit.removal.removals import Request
from scorer.metrics import EvictionReason
from scorer.preemption import search_delays

TEN_YEARS = 10 * 365 * 86400
REFUSALS = {
    "a policy": (403, "denied by a policy"),
    "a webhook": (422, "no"),
    "a budget": (429, "budget"),
    "two budgets": (500, "This pod has more than one PodDisruptionBudget, which"),
}


@pytest_asyncio.fixture
async def cluster():
    async with Running() as running:
        running.node("gpu-1")
        yield running


def refuse(cluster, name, refusal, *, asked=True):
    """Refuse to evict a pod; by default dry runs as well."""

    def refused(_method, path, body):
        is_it = path.endswith(f"/{name}/eviction") and "eviction" in path
        return (*refusal, "refused") if is_it else cluster.fence(body)

    if asked:
        cluster.refuse_dry_run = refused
    cluster.refuse = lambda *write: refused(*write) if "/eviction" in write[1] else None


async def two_gangs(cluster):
    """Fill both nodes with gangs; the first is the better victim."""
    await full(cluster)
    cluster.named_gang("same", 2, 4, priority=1)
    await cluster.run("same-0", "same-1")


def replaced(cluster, name, gang, **pod):
    """Let a pod end, and create it again as its controller does."""
    cluster.delete(name)
    owner = {**OWNER, "name": gang, "uid": f"job-{gang}"}
    cluster.pod(name, 4, gang=gang, owner=owner, uid=f"{name}-again", **pod)


@pytest.mark.parametrize("refusal", REFUSALS.values(), ids=REFUSALS)
async def test_nothing_is_evicted_before_the_api_server_accepted_each_member(cluster, refusal):
    refuse(cluster, "low-1", refusal)
    async with leading(cluster):
        await two_gangs(cluster)
        cluster.named_gang("high", 1, 8, priority=10)
        await until(lambda: cluster.ending("same-0", "same-1"))
        cluster.delete("same-0")
        cluster.delete("same-1")
        await until(lambda: cluster.allocated("high-0"))
    assert sorted(cluster.evicted()) == ["same-0", "same-1"]
    asked = [path.split("/")[-2] for path, _ in cluster.tried if path.endswith("/eviction")]
    assert sorted(asked) == ["low-0", "low-1", "same-0", "same-1"]
    assert len(cluster.events("Preempted")) == 1


DISTURBANCES = {
    "etcd elects": (500, "etcdserver: leader changed"),
    "a proxy": (502, "bad gateway"),
    "it starts": (503, "not ready"),
    "no answer in time": (504, "timeout"),
    "too many requests": (429, "too many requests, please try again later"),
}


@pytest.mark.parametrize("disturbance", DISTURBANCES.values(), ids=DISTURBANCES)
async def test_a_short_disturbance_of_the_api_server_is_no_refusal(cluster, disturbance):
    left = 2

    def disturbed(_method, path, _body):
        nonlocal left
        if not path.endswith("/low-1/eviction") or not left:
            return None
        left -= 1
        return (*disturbance, "disturbed")

    cluster.refuse_dry_run = disturbed
    async with leading(cluster):
        await two_gangs(cluster)
        cluster.named_gang("high", 1, 8, priority=10)
        await until(lambda: len(cluster.evicted()) == 2)
    assert {*cluster.evicted()} == {"low-0", "low-1"}


async def test_pods_that_a_dry_run_cannot_ask_about_are_evicted(cluster):
    """A webhook does not support dry runs."""
    cluster.refuse_dry_run = lambda _, path, __: (400, "no", "no") if "/eviction" in path else None
    async with leading(cluster):
        await full(cluster)
        cluster.named_gang("high", 2, 8, priority=10)
        await until(lambda: cluster.ending("low-0", "low-1"))


@pytest.mark.parametrize("refusal", REFUSALS.values(), ids=REFUSALS)
async def test_a_gang_that_is_refused_in_the_middle_goes_back_and_another_set_is_taken(
    cluster, monkeypatch, refusal
):
    monkeypatch.setattr(removal_state, "_PASSING", 0.3)
    refuse(cluster, "low-1", refusal, asked=False)
    async with leading(cluster):
        await two_gangs(cluster)
        before = cluster.record("low-0")
        cluster.named_gang("high", 1, 8, priority=10)
        await until(lambda: cluster.ending("same-0", "same-1"))
        assert cluster.ending("low-0")
        replaced(cluster, "low-0", "low")
        await until(lambda: cluster.allocated("low-0"))
        assert cluster.record("low-0")["gpus"] == before["gpus"]
        assert cluster.record("low-0")["node"] == before["node"]
        cluster.delete("same-0")
        cluster.delete("same-1")
        await until(lambda: cluster.allocated("high-0"))
        await until(lambda: not cluster.nominations())
    assert {*cluster.evicted()} == {"low-0", "low-1", "same-0", "same-1"}
    assert cluster.evicted().count("low-0") == 1
    texts = [event["message"] for event in cluster.events("Preempted")]
    (part,) = [text for text in texts if "of low" in text]
    assert part.startswith("1 of the 2 pods of low was evicted for a unit of priority 10, and goes")
    (whole,) = [text for text in texts if "of same" in text]
    assert whole.startswith("All 2 pods of same are evicted")


async def test_gpus_of_members_that_go_back_are_given_to_no_unit_of_a_higher_priority(
    cluster, monkeypatch
):
    monkeypatch.setattr(removal_state, "_PASSING", 0.3)
    cluster.remove("/api/v1/nodes/gpu-1")
    refuse(cluster, "low-1", REFUSALS["a budget"], asked=False)
    async with leading(cluster):
        await full(cluster)
        cluster.named_gang("high", 1, 8, priority=10)
        await until(lambda: cluster.ending("low-0"))
        await until(lambda: "nominatedNodes" not in cluster.status())
        cluster.named_gang("small", 1, 4, priority=11)
        cluster.delete("low-0")
        cluster.node("sign", 1)
        cluster.owned("sign", 1)
        await cluster.run("sign")
        assert not cluster.record("small-0")
        owner = {**OWNER, "name": "low", "uid": "job-low"}
        cluster.pod("low-0", 4, gang="low", owner=owner, uid="again")
        await until(lambda: cluster.allocated("low-0"))
        assert not cluster.record("small-0")


async def test_a_write_at_the_same_time_is_no_refusal(cluster):
    cluster.fail("POST", "low-1/eviction", *[(409, "the object has been modified")] * 3)
    async with leading(cluster):
        await full(cluster)
        cluster.named_gang("high", 2, 8, priority=10)
        await until(lambda: cluster.ending("low-0", "low-1"))
    assert {*cluster.evicted()} == {"low-0", "low-1"}
    bodies = [body for _, path, body in cluster.writes if path.endswith("low-1/eviction")]
    assert all(body["deleteOptions"] == {"preconditions": {"uid": "low-1"}} for body in bodies)


async def test_a_member_that_is_created_first_is_not_placed_beside_siblings_that_are_to_go(cluster):
    cluster.fail("POST", "low-1/eviction", *[(429, "budget")] * 9999)
    async with leading(cluster):
        await full(cluster)
        cluster.named_gang("high", 2, 8, priority=10)
        await until(lambda: cluster.ending("low-0"))
        replaced(cluster, "low-0", "low")
        cluster.node("small", 5)
        cluster.owned("sign", 1)
        await cluster.run("sign")
        assert not cluster.record("low-0")
        cluster.outcomes.clear()
        await until(lambda: cluster.ending("low-1"))


def set_unhealthy(cluster, node, gpu):
    folder = f"/api/v1/namespaces/{keys.TOPOLOGY_NAMESPACE}/configmaps"
    body = {
        "metadata": {"namespace": keys.TOPOLOGY_NAMESPACE},
        "data": {keys.UNHEALTHY_KEY: str(gpu)},
    }
    cluster.put(f"{folder}/{keys.UNHEALTHY_NAME_PREFIX}{node}", body)


@pytest.mark.parametrize("is_gone", [False, True], ids=["a GPU fails", "the node vanishes"])
async def test_a_nomination_whose_plan_does_not_hold_ends_at_once(cluster, is_gone):
    async with leading(cluster):
        await two_gangs(cluster)
        node = cluster.record("low-0")["node"]
        cluster.named_gang("high", 1, 8, priority=10)
        await until(lambda: cluster.ending("low-0", "low-1"))
        if is_gone:
            cluster.remove(f"/api/v1/nodes/{node}")
        else:
            set_unhealthy(cluster, node, 3)
        await until(lambda: cluster.ending("same-0", "same-1"))
        for name in ("low-0", "low-1", "same-0", "same-1"):
            cluster.delete(name)
        await until(lambda: cluster.allocated("high-0"))
        assert cluster.record("high-0")["node"] != node
    assert sorted(cluster.evicted()) == ["low-0", "low-1", "same-0", "same-1"]


async def test_a_unit_waits_for_a_long_grace_period_for_a_bounded_time(cluster, monkeypatch):
    """Then others are tried once."""
    monkeypatch.setattr(search_delays, "_AGAIN_MAX", 0.05)
    cluster.policy("gangs: {preemption: {minRunMinutes: 0, maxWaitSeconds: 100}}")
    cluster.node("gpu-2")
    cluster.grace = TEN_YEARS
    clock = Clock()
    async with leading(cluster, clock=clock):
        for name, priority in (("low", 0), ("same", 1), ("third", 2)):
            grace = {"terminationGracePeriodSeconds": TEN_YEARS}
            cluster.named_gang(name, 2, 4, priority=priority, **grace)
            await cluster.run(f"{name}-0", f"{name}-1")
        cluster.named_gang("high", 1, 8, priority=10)
        await until(lambda: cluster.ending("low-0", "low-1"))
        await until(lambda: f"until {rfc3339(NOW + 100)} at the latest" in cluster.waits())
        for evicted in (["same-0", "same-1"], []):
            clock.now += 101
            cluster.node("wakes", 0)
            await until(lambda: "nominatedNodes" not in cluster.status())
            cluster.node("wakes", 1)
            await until(lambda names=evicted: cluster.ending(*names))
        await until(lambda: "no others are evicted for it" in cluster.waits())
    assert not {"third-0", "third-1"} & {*cluster.evicted()}


async def test_the_next_leader_returns_a_gang_that_is_still_refused(cluster):
    refuse(cluster, "low-1", (429, "budget"), asked=False)
    async with leading(cluster):
        await two_gangs(cluster)
        cluster.named_gang("high", 1, 8, priority=10)
        await until(lambda: cluster.ending("low-0"))
    replaced(cluster, "low-0", "low")
    refuse(cluster, "low-1", (403, "denied"))
    async with leading(cluster, term=8):
        await until(lambda: cluster.ending("same-0", "same-1"))
        await until(lambda: cluster.allocated("low-0"))


# ---- Moves off faults.

ON_FAULT = "gangs: {onFault: evict, onFaultSeconds: 1, preemption: {minRunMinutes: 0}}"


def health(cluster, gang="low"):
    conditions = cluster.gang_object(gang)["status"].get("conditions", [])
    return next((each["message"] for each in conditions if each["type"] == "GPUsHealthy"), "")


async def fault(cluster, clock):
    """Let a GPU of a running gang be faulty for long enough."""
    await full(cluster)
    await until(lambda: cluster.status("low")["phase"] == "Placed")
    set_unhealthy(cluster, cluster.record("low-0")["node"], cluster.record("low-0")["gpus"][0]["i"])
    await until(lambda: health(cluster))
    clock.now += 1
    cluster.owned("wakes", 100)


@pytest.mark.parametrize("refusal", REFUSALS.values(), ids=REFUSALS)
async def test_a_gang_that_may_not_be_evicted_is_not_moved(cluster, refusal):
    cluster.policy(ON_FAULT)
    refuse(cluster, "low-1", refusal)
    clock = Clock()
    async with leading(cluster, clock=clock):
        await fault(cluster, clock)
        await until(lambda: "refused it" in health(cluster) or "budget does not" in health(cluster))
    assert cluster.evicted() == []
    assert keys.MOVED not in cluster.gang_object("low")["metadata"].get("annotations", {})


async def test_a_gang_whose_evicted_member_has_no_place_any_more_is_evicted_as_a_whole(cluster):
    """Its GPU is faulty, and no other one is free: until the other member goes, it runs in part."""
    cluster.remove("/api/v1/nodes/gpu-1")
    cluster.policy(ON_FAULT)
    refuse(cluster, "low-1", (422, "not now"), asked=False)
    clock = Clock()
    async with leading(cluster, clock=clock):
        await fault(cluster, clock)
        await until(lambda: cluster.evicted().count("low-1") == 2)
        assert cluster.ending("low-0")
        assert not cluster["low-1"]["metadata"].get("deletionTimestamp")
        cluster.refuse = lambda *_: None
        await until(lambda: cluster.ending("low-1"))
        await until(lambda: cluster.events("GangEvicted"))
        (event,) = cluster.events("GangEvicted")
        assert event["message"].startswith("All 2 members of gang low were evicted")


async def test_a_move_that_is_refused_in_the_middle_has_ended_for_each_leader(cluster, monkeypatch):
    monkeypatch.setattr(removal_state, "_NOWHERE", 0.3)
    cluster.policy(ON_FAULT)
    refuse(cluster, "low-1", (403, "denied"), asked=False)
    clock = Clock()

    def is_over():
        annotations = cluster.gang_object("low")["metadata"].get("annotations", {})
        return json.loads(annotations.get(keys.MOVED, "{}")).get("is_over", False)

    async with leading(cluster, clock=clock):
        await fault(cluster, clock)
        await until(lambda: cluster.ending("low-0") and is_over())
        await until(lambda: cluster.events("GangEvicted"))
        (event,) = cluster.events("GangEvicted")
        assert event["message"].startswith("1 of 2 members of gang low was evicted, and are placed")
    refuse(cluster, "low-1", (404, "nothing is refused"))
    async with leading(cluster, term=8, clock=clock):
        replaced(cluster, "low-0", "low")
        await until(lambda: cluster.allocated("low-0"))
    assert {*cluster.evicted()} == {"low-0", "low-1"}
    assert not cluster["low-1"]["metadata"].get("deletionTimestamp")


# ---- Failed bindings.


async def unbound(cluster, clock):
    """Bind one of two members, and let the other one fail."""
    cluster.named_gang("low", 2, 4)
    await until(lambda: cluster.allocated("low-0", "low-1"))
    cluster.bind("low-0")
    cluster.mark_unschedulable("low-1")
    cluster.owned("seen", 1)
    await until(lambda: cluster.allocated("seen"))
    cluster.bind("seen")
    clock.now += 61
    cluster.owned("wakes", 100)


@pytest.mark.parametrize("refusal", REFUSALS.values(), ids=REFUSALS)
async def test_members_stay_if_one_may_not_be_evicted(cluster, refusal):
    refuse(cluster, "low-0", refusal)
    clock = Clock()
    async with leading(cluster, clock=clock):
        await unbound(cluster, clock)
        await until(lambda: "no member is evicted" in cluster.waits("low"))
        clock.now += 30
        cluster.owned("wakes-again", 100)
        await until(lambda: cluster.events("WaitingForGPUs"))
    assert cluster.evicted() == []


async def test_the_member_that_is_bound_is_evicted_first(cluster):
    refuse(cluster, "low-0", (403, "denied"), asked=False)
    clock = Clock()
    async with leading(cluster, clock=clock):
        await unbound(cluster, clock)
        await until(lambda: "no member is evicted" in cluster.waits("low"))
    assert cluster.evicted() == ["low-0"]
    assert not cluster["low-1"]["metadata"].get("deletionTimestamp")


async def test_the_next_leader_gives_up_what_is_left_of_a_failed_binding(cluster):
    """Also the member that was created again meanwhile, and that runs."""
    clock = Clock()
    cluster.stops_after = 1
    cluster.refuse = lambda _, __, body: cluster.fence(body) if keys.TERM in str(body) else None
    async with leading(cluster, clock=clock):
        await unbound(cluster, clock)
        await until(lambda: len(cluster.accepted) == 1 and cluster.late)
        async with leading(cluster, term=8, clock=clock):
            cluster.goes_on.set()
            (_, first) = cluster.accepted[0]
            replaced(cluster, first, "low")
            await cluster.run(first)
            clock.now += 61
            cluster.owned("wakes-again", 100)
            await until(lambda: cluster.ending("low-0", "low-1"))


async def test_a_member_that_is_bound_or_started_meanwhile_is_evicted_with_the_others(cluster):
    """Its version changes several times."""
    cluster.fail("POST", "low-0/eviction", *[(409, "modified")] * 5)
    clock = Clock()
    async with leading(cluster, clock=clock):
        await unbound(cluster, clock)
        await until(lambda: cluster.ending("low-0", "low-1"))
        await until(lambda: cluster.events("GangEvicted"))
    (event,) = cluster.events("GangEvicted")
    assert event["message"].startswith("All 2 members of gang low were evicted")


# ---- Two removals at once.


def request(state, ended, *gangs):
    units = {
        GangKey("team", gang, f"job-{gang}"): state.groups.of(("team", gang)) for gang in gangs
    }
    units = {key: tuple(pods) for key, pods in units.items()}
    return Request(units, EvictionReason.PREEMPTED, on_end=ended)


async def test_a_unit_is_in_one_removal_at_a_time(cluster):
    async with leading(cluster) as leader:
        await full(cluster)
        removals, state = leader.context.planner._removals, leader.context.informers.state
        ended = []
        removals.begin(request(state, ended.append, "low"))
        removals.begin(request(state, ended.append, "low"))
        await until(lambda: not removals.units)
    assert [removal.step for removal in ended] == [Step.UNTOUCHED, Step.GONE]
    assert sorted(cluster.evicted()) == ["low-0", "low-1"]


async def test_an_exception_at_the_end_of_one_unit_leaves_no_other_in_its_removal(cluster):
    def broken(removal):
        raise AssertionError(removal)

    async with leading(cluster) as leader:
        await two_gangs(cluster)
        removals, state = leader.context.planner._removals, leader.context.informers.state
        removals.begin(request(state, broken, "low", "same"))
        await until(lambda: not removals.units)
