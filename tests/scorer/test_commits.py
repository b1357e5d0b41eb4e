"""Refused writes, dry runs before a commit, and timeouts of writes."""

import json
import re

import pytest
import pytest_asyncio
from support.servers.fake_cluster import FENCED
from support.servers.leader_harness import Clock, Cluster, leading
from support.waiting import until

from linkwise.cluster import keys
from scorer.extender.wire import Binding
from scorer.fence import WRITE_TIMEOUT

TOO_LONG = "Too long: may not be more than 262144 bytes"
INVALID = (422, f'Pod "x" is invalid: metadata.annotations: {TOO_LONG}', TOO_LONG)
PODS = "/api/v1/namespaces/team/pods"


@pytest_asyncio.fixture
async def cluster():
    async with Cluster() as running:
        running.node()
        yield running


def refuse(cluster, name, answer=INVALID):
    """Refuse all writes and dry runs on a pod, and the dry runs that the fence refuses."""

    def dry(_method, path, body):
        return answer if path.endswith(f"/{name}") else cluster.fence(body)

    cluster.refuse_dry_run = dry
    cluster.fail("PATCH", name, *[answer] * 1000)


def bare_gang(cluster, workers=4, gpus=2):
    for i in range(workers):
        cluster.pod(f"bert-{i}", gpus, gang="bert", size=workers, owner=None)


def written(cluster, *names):
    return [name for name in names if cluster.patches(name)]


# ---- Pods that are always refused.


async def test_a_refused_pod_with_the_name_of_the_fence_does_not_end_leadership(cluster):
    refuse(cluster, "linkwise-fence-0", (422, *INVALID[1:]))
    async with leading(cluster) as leader:
        cluster.pod("linkwise-fence-0", priority=1)
        await until(lambda: cluster.patches("linkwise-fence-0"))
        cluster.pod("other")
        await until(lambda: cluster.allocated("other"))
        assert leader.context


async def test_a_pod_that_is_invalid_with_its_record_backs_off_at_the_maximum(
    cluster,
):
    refuse(cluster, "cursed")
    async with leading(cluster) as leader:
        cluster.pod("cursed")
        waiting = leader.context.planner.waiting
        await until(lambda: any(TOO_LONG in why for _, why in waiting()))
        (event,) = await shown(cluster, "WaitingForGPUs")

    assert "pod cursed: " in event["message"]
    assert "tried again in 60 s" in event["message"]
    assert len(cluster.patches("cursed")) == 1


async def shown(cluster, reason):
    await until(lambda: cluster.events(reason))
    return cluster.events(reason)


async def test_a_new_leader_writes_an_invalid_pod_once(cluster):
    refuse(cluster, "cursed")
    cluster.pod("cursed")
    for term in (7, 8, 9):
        async with leading(cluster, term=term) as leader:
            waiting = leader.context.planner.waiting
            await until(lambda waiting=waiting: any(TOO_LONG in why for _, why in waiting()))

    assert len(cluster.patches("cursed")) == 3


async def test_a_refused_unit_is_planned_after_the_others(cluster):
    cluster.fail("PATCH", "cursed", (403, "no"))
    async with leading(cluster, commit_retry=0.2) as leader:
        waiting = leader.context.planner.waiting
        cluster.pod("cursed", 8, priority=9)
        await until(lambda: cluster.patches("cursed"))
        cluster.pod("first", 8)
        await until(lambda: cluster.allocated("first"))
        cluster.pod("next", 8, created="2026-01-01T00:00:09Z")
        # No backoff is left: both wait for the GPUs of the first one.
        await until(lambda: [why.count("needs 8 GPUs") for _, why in waiting()] == [1, 1])
        cluster.delete("first")
        await until(lambda: cluster.allocated("next"))

    assert cluster.record("cursed") is None


async def test_the_fence_is_checked_until_a_valid_pod_shows_its_state(cluster):
    tried = []

    def dry(_method, path, body):
        tried.append((path.rpartition("/")[2], cluster.fence(body) is not None))
        return INVALID if path.endswith("cursed") else None

    cluster.refuse_dry_run = dry
    cluster.fail("PATCH", "cursed", INVALID)
    async with leading(cluster):
        cluster.pod("cursed")
        await until(lambda: cluster.patches("cursed"))
        for name in ("one", "two"):
            cluster.pod(name)
            await until(lambda name=name: cluster.allocated(name))

    assert tried == [("cursed", True), ("one", True)]


# ---- Gangs with a refused member.


async def test_no_bare_pod_is_written_if_the_dry_run_refuses_one(cluster):
    refuse(cluster, "bert-3")
    async with leading(cluster):
        bare_gang(cluster)
        (event,) = await shown(cluster, "GangWaiting")
        assert (
            f'pod bert-3: Pod "x" is invalid: metadata.annotations: {TOO_LONG}'
            in (event["message"])
        )
        cluster.pod("other", 8)
        await until(lambda: cluster.allocated("other"))

    assert written(cluster, *(f"bert-{i}" for i in range(4))) == []


async def test_a_gang_of_pods_of_different_sizes_starts_with_a_dry_run(cluster):
    refuse(cluster, "bert-1")
    async with leading(cluster):
        cluster.pod("bert-0", 4, gang="bert")
        cluster.pod("bert-1", 4, gang="bert", annotations={"any": "a" * 2000})
        await shown(cluster, "GangWaiting")

    assert written(cluster, "bert-0", "bert-1") == []


async def test_a_gang_with_a_refused_member_starts_with_a_dry_run_next_time(cluster):
    cluster.fail("PATCH", "bert-1", *[(403, "no")] * 1000)
    async with leading(cluster):
        cluster.gang()
        await until(lambda: cluster.allocated("bert-0") and len(cluster.patches("bert-1")) > 1)
        for name in ("bert-0", "bert-1"):
            cluster.delete(name)
        before = len(cluster.patches("bert-0"))
        refuse(cluster, "bert-1", (403, "no"))
        for i in (0, 1):
            cluster.pod(f"bert-{i}", 4, gang="bert", uid=f"new-{i}")
        await until(lambda: (f"{PODS}/bert-1", (403, "no")) in cluster.tried)
        assert len(cluster.patches("bert-0")) == before


async def test_other_gangs_have_no_dry_run(cluster):
    async with leading(cluster):
        cluster.gang()
        await until(lambda: cluster.allocated("bert-0", "bert-1"))

    # The only dry run checks the fence.
    assert [refusal for _, refusal in cluster.tried] == [FENCED]


async def test_bare_pods_are_placed_if_a_webhook_does_not_support_dry_runs(cluster):
    no = (400, 'admission webhook "any" does not support dry run')
    cluster.refuse_dry_run = lambda *_: no
    async with leading(cluster):
        bare_gang(cluster)
        await until(lambda: cluster.allocated(*(f"bert-{i}" for i in range(4))))


async def test_a_partial_gang_that_cannot_be_evicted_has_an_event_and_is_counted(cluster):
    # The dry run passes; the write does not.
    cluster.fail("PATCH", "bert-3", *[(403, "another policy")] * 1000)
    async with leading(cluster) as leader:
        bare_gang(cluster)
        (event, *_) = await shown(cluster, "GangPartial")
        await until(lambda: leader.report().partial == 1)
        cluster.outcomes.clear()
        await until(lambda: cluster.allocated("bert-3"))
        await until(lambda: leader.report().partial == 0)

    assert event["type"] == "Warning"
    assert re.match(
        r"3 of 4 members of gang bert have their GPUs, the others do not: the API server refused"
        r" to update its pods: pod bert-3: another policy \(status 403\);"
        r" pod bert-\d has no controller that would create it again",
        event["message"],
    )
    assert len(cluster.events("GangPartial")) == 1


# ---- Timeouts of writes.

WRITES = {
    ("PATCH", "pods"): True,
    ("POST", "pods/binding"): True,
    ("POST", "gangs"): True,
    ("PATCH", "gangs"): True,
    ("PATCH", "gangs/status"): False,
    ("POST", "pods/eviction"): False,
    ("POST", "events"): False,
}
"""All kinds of writes of a leader, and whether they allocate GPUs."""


def kind_of(path):
    _, _, rest = path.partition("/namespaces/team/")
    kind, _, name = rest.partition("/")
    _, _, sub = name.partition("/")
    return f"{kind}/{sub}" if sub else kind


def allocates(body):
    """Return whether a body allocates GPUs: it has a record or a plan."""
    text = json.dumps(body)
    return any(word in text for word in (keys.ALLOCATION, "~1allocation", '"plan"', "/plan"))


@pytest.fixture
def clock():
    return Clock()


async def test_every_write_that_allocates_gpus_has_a_timeout_at_the_server(cluster, clock):
    cluster.fail("PATCH", "bert-1", (403, "no"))
    async with leading(cluster, clock=clock) as leader:
        cluster.gang()
        await until(lambda: cluster.allocated("bert-0", "bert-1"))
        cluster.mark_unschedulable("bert-0", "bert-1")
        # The next pods let the planner see the condition, and that time has passed.
        cluster.node("gpu-1")
        cluster.pod("tried", 1)
        await until(lambda: cluster.allocated("tried"))
        clock.now += 100
        cluster.pod("sign", 1)
        await until(lambda: cluster["bert-0"] is None)
        await shown(cluster, "GangEvicted")
        for i in (0, 1):
            cluster.pod(f"bert-{i}", 2, gang="bert", uid=f"new-{i}")
        await until(lambda: cluster.allocated("bert-0", "bert-1"))
        cluster.pod("single", 1, gates=())
        known = leader.context.informers.state.pod
        await until(lambda: known(("team", "single")))
        binding = Binding("single", "team", "single", "gpu-1")
        assert await leader.context.binder.bind(binding) is None

    writes = list(zip(cluster.writes, cluster.queries, strict=True))
    timeouts = {(method, kind_of(path)): {} for (method, path, _), _ in writes}
    for (method, path, body), query in writes:
        timeouts[method, kind_of(path)].setdefault(allocates(body), set()).add(query.get("timeout"))
    assert timeouts.keys() == WRITES.keys()
    assert {write for write, by_kind in timeouts.items() if True in by_kind} == {
        write for write, granting in WRITES.items() if granting
    }
    assert {t for by_kind in timeouts.values() for t in by_kind.get(True, ())} == {
        WRITE_TIMEOUT["timeout"]
    }
