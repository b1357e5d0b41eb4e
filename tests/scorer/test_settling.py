"""A gang waits shortly for pods that are ending where it would be faster without them."""

import json

import pytest_asyncio
from support.builders import a_held_pod
from support.servers.leader_harness import Clock, Cluster, leading
from support.waiting import until

from linkwise.cluster import keys

POLICY = "machines: [{nodeLabels: {pool: dgx}, machine: dgx1-v100}]"
SLOW = (0, 5)
"""No NVLink joins these."""


@pytest_asyncio.fixture
async def cluster():
    async with Cluster() as running:
        running.policy(POLICY)
        running.node(pool="dgx")
        for i in range(8):
            running_pod(running, i)
        yield running


def running_pod(cluster, i, *, ending=False):
    record = {"v": 1, "node": "gpu-0", "gpus": [{"i": i}], "plan": "6-1"}
    annotations = {keys.ALLOCATION: json.dumps(record), keys.TERM: "6"}
    raw = a_held_pod(
        1, f"old-{i}", gates=(), annotations=annotations, nodeName="gpu-0", phase="Running"
    )
    if ending:
        raw["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    cluster.put(f"/api/v1/namespaces/team/pods/old-{i}", raw)


def end_all(cluster):
    """Delete all pods; those of the slow GPUs are gone first."""
    for i in range(8):
        if i not in SLOW:
            running_pod(cluster, i, ending=True)
    for i in SLOW:
        cluster.delete(f"old-{i}")


def end_the_rest(cluster):
    for i in {*range(8)} - {*SLOW}:
        cluster.delete(f"old-{i}")


def gpus(cluster):
    return {gpu["i"] for name in ("bert-0", "bert-1") for gpu in cluster.record(name)["gpus"]}


def reasons(leader):
    return [reason for _, reason in leader.context.planner.waiting()]


async def settling(cluster, leader):
    cluster.gang(gpus=1)
    await until(lambda: reasons(leader))
    end_all(cluster)
    await until(lambda: "pods that are ending" in reasons(leader)[0])


async def test_a_gang_waits_for_pods_that_are_ending_and_gets_the_better_gpus(cluster):
    async with leading(cluster) as leader:
        await settling(cluster, leader)
        end_the_rest(cluster)
        await until(lambda: cluster.allocated("bert-0", "bert-1"))
    assert gpus(cluster) != set(SLOW)


async def test_a_gang_waits_no_longer_than_the_policy_allows(cluster):
    clock = Clock()
    async with leading(cluster, clock=clock) as leader:
        await settling(cluster, leader)
        clock.now += 2
        cluster.node("other", 1)
        await until(lambda: cluster.allocated("bert-0", "bert-1"))
    assert gpus(cluster) == set(SLOW)


async def test_further_pods_that_end_do_not_prolong_the_wait(cluster):
    clock = Clock()
    async with leading(cluster, clock=clock) as leader:
        await settling(cluster, leader)
        clock.now += 1.5
        cluster.delete("old-2")
        cluster.pod("later", 8, created="2026-01-02T00:00:00Z")
        # The gang is planned before it, and again waits for the pods that are still ending.
        await until(lambda: len(reasons(leader)) == 2 and "queued" not in reasons(leader))
        clock.now += 0.5
        cluster.node("other", 1)
        await until(lambda: cluster.allocated("bert-0", "bert-1"))


async def test_no_other_unit_gets_the_gpus_that_a_gang_has_meanwhile(cluster):
    async with leading(cluster) as leader:
        await settling(cluster, leader)
        cluster.pod("later", 1, created="2026-01-02T00:00:00Z")
        await until(lambda: len(reasons(leader)) == 2 and "queued" not in reasons(leader))
        assert not cluster.record("later")
        end_the_rest(cluster)
        await until(lambda: cluster.allocated("bert-0", "bert-1", "later"))
    assert gpus(cluster) != set(SLOW)


async def test_without_time_a_gang_does_not_wait(cluster):
    cluster.policy(f"{POLICY}\ngangs: {{settleSeconds: 0}}")
    async with leading(cluster) as leader:
        cluster.gang(gpus=1)
        await until(lambda: reasons(leader))
        end_all(cluster)
        await until(lambda: cluster.allocated("bert-0", "bert-1"))
    assert gpus(cluster) == set(SLOW)
