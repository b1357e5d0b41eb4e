"""A leader follows the rules of pods that select namespaces by labels."""

import pytest
import pytest_asyncio
from support.servers.leader_harness import Cluster, leading
from support.waiting import until

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
NAMESPACES = "/api/v1/namespaces"
HOST = "kubernetes.io/hostname"
OF_VISION = {"matchLabels": {"team": "vision"}}


@pytest_asyncio.fixture
async def cluster():
    async with Cluster() as running:
        for name in ("gpu-0", "gpu-1"):
            running.node(name)
        yield running


def label(cluster, **labels):
    cluster.put(f"{NAMESPACES}/team", {"metadata": {"name": "team", "labels": labels}})


def rule(kind):
    term = {"topologyKey": HOST, "labelSelector": {}, "namespaceSelector": OF_VISION}
    return {kind: {REQUIRED: [term]}}


async def test_a_pod_goes_near_pods_of_a_namespace_once_it_has_the_labels(cluster):
    label(cluster)
    async with leading(cluster) as leader:
        cluster.pod("first")
        await until(lambda: cluster.allocated("first"))
        cluster.pod("near", affinity=rule("podAffinity"))
        state = leader.context.informers.state
        await until(lambda: (pod := state.pod(("team", "near"))) and pod.member)
        cluster.pod("later")
        await until(lambda: cluster.allocated("later"))
        assert not cluster.record("near")
        label(cluster, team="vision")
        await until(lambda: cluster.allocated("near"))
    assert cluster.record("near")["node"] in {
        cluster.record(name)["node"] for name in ("first", "later")
    }


async def test_a_running_pod_keeps_away_the_pods_of_a_namespace_with_the_labels(cluster):
    label(cluster, team="vision")
    async with leading(cluster):
        cluster.pod("alone", affinity=rule("podAntiAffinity"))
        await until(lambda: cluster.allocated("alone"))
        cluster.pod("other")
        await until(lambda: cluster.allocated("other"))
    assert cluster.record("alone")["node"] != cluster.record("other")["node"]


@pytest.mark.parametrize("status", [403, 404])
async def test_without_the_right_to_read_namespaces_pods_are_placed_all_the_same(cluster, status):
    for _ in range(99):
        cluster.outcomes["GET", NAMESPACES].append((status, "no"))
    async with leading(cluster):
        cluster.pod("near", affinity=rule("podAffinity"))
        await until(lambda: cluster.allocated("near"))
