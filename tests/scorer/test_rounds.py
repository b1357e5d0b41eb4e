"""Scheduling cycles of a leader: their order and length while commits go on."""

import asyncio
import re
from itertools import count

import pytest
import pytest_asyncio
from structlog.testing import capture_logs
from support.servers.leader_harness import Cluster, leading
from support.waiting import until, until_true

from linkwise.cluster import keys
from linkwise.cluster.objects import node_terms
from linkwise.planning.gang import compact_pod, plan_record
from linkwise.planning.gang.crd import GANGS
from linkwise.planning.placement.filtering import feasibility
from linkwise.planning.placement.state import node_columns
from scorer.timings import Timings

WORKERS = 8
ROUNDS = re.compile(r"linkwise_planning_duration_seconds_count (\S+)")


class Gated(Cluster):
    """A cluster that accepts writes of pods while `open` is set."""

    def __init__(self):
        super().__init__()
        self.open = asyncio.Event()
        self.open.set()

    async def _answer(self, request):
        if request.method == "PATCH" and "/pods/" in request.path:
            await self.open.wait()
        return await super()._answer(request)

    def offer(self, name, **pod):
        """Create a gang that fills a node."""
        owner = {"kind": "MPIJob", "name": name, "uid": name, "apiVersion": "kubeflow.org/v1"}
        self.gang(name, WORKERS, 1, owner=owner, **pod)

    def order(self):
        """Return the gangs in the order of their writes, one entry for a series of writes."""
        order = []
        for method, path, _ in self.writes:
            if method == "PATCH" and "/pods/" in path:
                gang = path.rpartition("/")[2].rpartition("-")[0]
                if order[-1:] != [gang]:
                    order.append(gang)
        return order


@pytest_asyncio.fixture
async def cluster():
    async with Gated() as running:
        for i in range(12):
            running.node(f"gpu-{i:02}")
        yield running


async def test_few_gangs_are_planned_ahead_of_the_commit(cluster):
    cluster.open.clear()
    async with leading(cluster) as leader:
        for i in range(10):
            cluster.offer(f"gang-{i}")
        await until(lambda: len(cluster.all(GANGS)) >= 5)
        cluster.offer("urgent", priority=1)
        waiting = leader.context.planner.waiting
        await until(lambda: any(u.key.name == "urgent" and u.present == 8 for u, _ in waiting()))
        assert len(cluster.all(GANGS)) == 5
        cluster.open.set()
        await until(lambda: len(set(cluster.order())) == 11)
        await until(lambda: not list(waiting()))

    # A higher priority passes all gangs that were not planned yet, and no two commits overlap.
    assert cluster.order().index("urgent") == 5
    assert len(cluster.order()) == 11


async def test_a_pass_over_all_units_continues_in_the_next_cycle(cluster):
    for i in range(12):
        cluster.offer(f"fits-{i:02}", created="2026-01-01T00:00:00Z")
    async with leading(cluster, round=0) as leader:
        for i in range(30):
            cluster.offer(f"late-{i:02}", created="2026-01-01T00:00:01Z")
        await until(lambda: len(set(cluster.order())) == 12)
        waiting = leader.context.planner.waiting
        await until(lambda: sum("0 of 8 workers" in why for _, why in waiting()) == 30)
        cluster.delete("fits-03-0")
        for i in range(1, WORKERS):
            cluster.delete(f"fits-03-{i}")
        await until(lambda: len(set(cluster.order())) == 13)

    assert cluster.order()[12] == "late-00"


@pytest.mark.parametrize("timings", [Timings(round=0)])
async def test_a_cycle_ends_when_its_time_is_over(scorer, cluster):
    for i in range(30):
        cluster.pod(f"large-{i}", 9)

    async def each_was_planned_in_a_round_of_its_own():
        _, shown = await scorer.probe("/metrics")
        return int(float(ROUNDS.search(shown)[1])) >= 30

    await until_true(each_was_planned_in_a_round_of_its_own)


async def test_the_last_unit_is_planned_although_capacity_is_freed_all_the_time(cluster):

    async def come_and_go():
        for number in count():
            cluster.pod(f"short-{number}", 0, gates=(), nodeName="gpu-00", phase="Running")
            await asyncio.sleep(0.001)
            cluster.delete(f"short-{number}")

    async with leading(cluster, round=0) as leader:
        churn = asyncio.create_task(come_and_go())
        for i in range(100):
            cluster.pod(f"large-{i:03}", 9, created=f"2026-01-01T00:{i // 60:02}:{i % 60:02}Z")
        waiting = leader.context.planner.waiting
        await until(lambda: sum("needs 9 GPUs" in why for _, why in waiting()) == 100)
        churn.cancel()


async def test_a_unit_that_is_always_refused_releases_its_gpus(cluster):
    cluster.put("/api/v1/nodes/only", cluster.get("/api/v1/nodes/gpu-00"))
    for i in range(12):
        cluster.remove(f"/api/v1/nodes/gpu-{i:02}")
    cluster.fail("PATCH", "cursed-0", *[(403, "no")] * 1000)
    async with leading(cluster, commit_retry=0.2) as leader:
        cluster.gang("cursed", 1, 8, priority=1)
        await until(lambda: cluster.patches("cursed-0"))
        cluster.pod("other", 8)
        await until(lambda: cluster.allocated("other"))
        cluster.delete("other")
        refusal = "the API server refused to update its pods: pod cursed-0: no (status 403)"
        reason = f"{refusal}; tried again in 0.8 s"
        await until(lambda: cluster.the_gang().get("status", {}).get("reason") == reason)
        assert len(cluster.patches("cursed-0")) == 3
        assert [why for _, why in leader.context.planner.waiting()] == [refusal]

        cluster.delete("cursed-0")
        await until(lambda: not list(leader.context.planner.waiting()))
        cluster.pod("after", 8)
        await until(lambda: cluster.allocated("after"))


async def test_a_unit_whose_plan_cannot_be_recorded_releases_its_gpus_and_backs_off(cluster):
    for i in range(1, 12):
        cluster.remove(f"/api/v1/nodes/gpu-{i:02}")
    gangs = "/apis/linkwise.dev/v1alpha1/namespaces/team/gangs"
    cluster.outcomes["POST", gangs] += [(403, "exceeded quota: few-gangs")] * 1000
    async with leading(cluster, commit_retry=0.2) as leader:
        cluster.gang("cursed", 1, 8, priority=1)
        await until(lambda: ("POST", gangs) in {write[:2] for write in cluster.writes})
        cluster.pod("other", 8)
        await until(lambda: cluster.allocated("other"))
        await until(lambda: cluster.events("GangWaiting"))
        waiting = leader.context.planner.waiting
        cluster.delete("other")
        await until(lambda: any("few-gangs" in why for _, why in waiting()))
        assert cluster.record("cursed-0") is None

        cluster.outcomes["POST", gangs].clear()
        await until(lambda: cluster.allocated("cursed-0"))


async def test_a_node_that_is_not_ready_keeps_the_allocations_of_its_pods(cluster):
    async with leading(cluster):
        cluster.offer("runs")
        await until(lambda: cluster.order() == ["runs"])
        names = [f"runs-{i}" for i in range(WORKERS)]
        await until(lambda: cluster.allocated(*names))
        cluster.bind(*names)
        await until(lambda: cluster.events("GangPlaced"))
        written = len(cluster.writes)
        node = cluster.get(f"/api/v1/nodes/{cluster.record('runs-0')['node']}")
        not_ready = {"conditions": [{"type": "Ready", "status": "False"}]}
        status = {**node["status"], **not_ready}
        cluster.put(f"/api/v1/nodes/{node['metadata']['name']}", {**node, "status": status})
        cluster.offer("next")
        await until(lambda: cluster.order() == ["runs", "next"])

    assert not [path for _, path, _ in cluster.writes[written:] if "/pods/runs" in path]
    assert cluster.record("next-0")["node"] != node["metadata"]["name"]


async def test_nothing_is_kept_of_deleted_gangs(cluster):
    container = {"name": "c", "resources": {"limits": {keys.GPU_WHOLE: 1}}}
    replicas = {"replicas": WORKERS, "template": {"spec": {"containers": [container]}}}
    path = "/apis/kubeflow.org/v1/namespaces/team/mpijobs/bert"
    cluster.put(
        path, {"metadata": {"uid": "bert"}, "spec": {"mpiReplicaSpecs": {"Worker": replicas}}}
    )
    async with leading(cluster) as leader:
        cluster.offer("bert", size=None)
        await until(lambda: cluster.order() == ["bert"])
        declared = leader.context.informers.owners.declared
        assert declared == {"bert": WORKERS}
        for i in range(WORKERS):
            cluster.delete(f"bert-{i}")
        await until(lambda: not declared)
        before = cluster.reads.count(path)
        cluster.offer("bert", size=None)
        await until(lambda: cluster.reads.count(path) > before)


def choosy(terms):
    """Return an affinity that matches every node by its last term."""
    holds = {"key": "none", "operator": "DoesNotExist"}
    fails = {"key": "none", "operator": "Exists"}
    terms = [{"matchExpressions": [holds] * 250 + [fails]}] * terms
    required = {"nodeSelectorTerms": [*terms, {"matchExpressions": [holds]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


async def test_a_slow_unit_is_planned_after_the_others(cluster, monkeypatch):
    # With the limits of a pod, planning is too fast for this test.
    for module, bound in (
        (node_terms, "MAX_TERMS"),
        (node_terms, "MAX_REQUIREMENTS"),
        (compact_pod, "MAX_BYTES"),
    ):
        monkeypatch.setattr(module, bound, 1 << 30)
    # Every node is evaluated.
    monkeypatch.setattr(feasibility, "_LABELS_MAX", 0)
    limits = {"first_limit": 0.05, "retry_limit": 0.05}
    retries = {"slow_unit_retry": 0.3, "slow_unit_retry_max": 0.3}
    async with leading(cluster, **limits, **retries) as leader:
        waiting = leader.context.planner.waiting
        # It takes some 12 ms a node.
        cluster.offer("choosy", priority=1, affinity=choosy(250))
        await until(lambda: any("takes more than 0.05 s" in why for _, why in waiting()))
        cluster.offer("next")
        await until(lambda: cluster.order() == ["next", "choosy"])

    # There was no time left for the plan on an empty cluster.
    plans = {gang["spec"]["gang"]: gang["spec"]["plan"] for gang in cluster.all(GANGS)}
    assert "bestPossible" not in plans["choosy"]


async def test_a_unit_whose_planning_raises_backs_off_and_others_are_placed(cluster, monkeypatch):
    # Columns hold 64 bits: this amount raises during planning.
    monkeypatch.setattr(node_columns, "_MAX_AMOUNT", 1 << 80)
    async with leading(cluster) as leader:
        with capture_logs() as logs:
            cluster.gang("huge", 2, 1 << 64, priority=1)
            waiting = leader.context.planner.waiting
            reason = "planning it fails by a fault of the scorer, whose log shows it"
            await until(lambda: any(reason in why for _, why in waiting()))
            cluster.offer("next")
            await until(lambda: cluster.order() == ["next"])

    first, *_ = (line for line in logs if line["event"] == "Could not plan")
    assert (first["unit"], first["retry_after"], first["exc_info"]) == (
        "team/huge",
        Timings().slow_unit_retry,
        True,
    )


async def test_a_plan_whose_resumption_raises_does_not_stop_others(cluster, monkeypatch):
    def raises(*_):
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(plan_record, "placement_of", raises)
    cluster.node("gpu-0")
    cluster.interrupted_gang()
    # Rendering a traceback takes longer than the test.
    with capture_logs() as logged:
        async with leading(cluster) as leader:
            cluster.offer("next")
            await until(lambda: cluster.allocated(*(f"next-{i}" for i in range(WORKERS))))
            assert any("fails by a fault" in why for _, why in leader.context.planner.waiting())

    assert cluster.record("bert-1") is None
    assert "Could not plan" in {line["event"] for line in logged}
