"""The DeviceTaintRules are kept as the nodes demand."""

import asyncio
from contextlib import asynccontextmanager

import msgspec
import pytest
import pytest_asyncio
from prometheus_client import CollectorRegistry
from support.builders import a_node, an_exact_node
from support.servers.fake_cluster import FakeCluster
from support.waiting import PATIENCE, until

from linkwise.cluster.nodes.device_fence import FenceRule, fence_of
from linkwise.cluster.nodes.node import DevicePool
from linkwise.cluster.nodes.taint_rules import Selector
from linkwise.planning.state.cluster_state import ClusterState
from linkwise.runtime.kube.client import Kube
from scorer.device_fence import DeviceFence
from scorer.metrics import Metrics
from scorer.queue.fault_isolation import FaultIsolation

V1, BETA = "resource.k8s.io/v1", "resource.k8s.io/v1beta2"


@pytest_asyncio.fixture
async def cluster():
    async with FakeCluster() as running:
        running.apis = {f"/apis/{V1}": ["resourceclaims", "devicetaintrules"]}
        yield running


@pytest.fixture
def state():
    return ClusterState()


@asynccontextmanager
async def keeping(cluster, state, bypasses=dict):
    async with Kube(cluster.url, timeout=PATIENCE) as kube:
        faults = FaultIsolation(Metrics(CollectorRegistry()), lambda: None)
        fence = DeviceFence(kube, kube, state, faults, bypasses)
        task = asyncio.create_task(fence.run(0.01))
        try:
            yield fence
        finally:
            task.cancel()
            await asyncio.wait((task,))
            assert task.cancelled()


def claims_node(state, name="gpu-0", others=0, busy=()):
    devices = tuple(f"gpu-{i}" for i in range(8))
    pool = DevicePool(name, devices, others=others, busy=frozenset(busy))
    node = a_node(name, uuids=True, resources={}, pool=pool)
    state.update_node(name, node)
    return node


def rules(cluster, version=V1):
    """Return the pool and the device of each rule."""
    selectors = [
        rule["spec"]["deviceSelector"] for rule in cluster.all(f"/apis/{version}/devicetaintrules")
    ]
    return sorted((selector["pool"], selector.get("device", "")) for selector in selectors)


def put(cluster, rule, **spec):
    body = msgspec.to_builtins(rule.body(V1))
    body["spec"] |= spec
    cluster.put(f"/apis/{V1}/devicetaintrules/{rule.name}", body)
    return rule.name


@pytest.mark.parametrize("version", [V1, BETA])
async def test_each_claims_node_has_a_rule_by_the_version_that_is_served(cluster, state, version):
    cluster.apis = {f"/apis/{V1}": ["resourceclaims"], f"/apis/{BETA}": ["resourceclaims"]}
    cluster.apis[f"/apis/{version}"].append("devicetaintrules")
    claims_node(state, "a")
    claims_node(state, "b")
    state.update_node("exact", an_exact_node("exact"))
    async with keeping(cluster, state) as fence:
        await until(lambda: rules(cluster, version) == [("a", ""), ("b", "")])
        await until(lambda: fence.unfenced() == {})

    assert {rule["apiVersion"] for rule in cluster.all(f"/apis/{version}/devicetaintrules")} == {
        version
    }


async def test_the_rule_of_a_node_that_leaves_the_mode_is_deleted(cluster, state):
    claims_node(state)
    async with keeping(cluster, state):
        await until(lambda: rules(cluster))
        state.update_node("gpu-0", an_exact_node("gpu-0"))
        await until(lambda: not rules(cluster))


async def test_the_rule_of_a_node_whose_driver_is_away_stays(cluster, state):
    claims_node(state)
    async with keeping(cluster, state):
        await until(lambda: rules(cluster))
        state.update_node("gpu-0", a_node("gpu-0", None, resources={}))
        claims_node(state, "next")
        await until(lambda: len(rules(cluster)) == 2)

    assert not [method for method, *_ in cluster.writes if method == "DELETE"]


async def test_a_changed_rule_is_corrected_in_place(cluster, state):
    (rule,) = fence_of(claims_node(state))
    async with keeping(cluster, state):
        await until(lambda: rules(cluster))
        taint = {"key": "linkwise.dev/placed", "effect": "None"}
        name = put(cluster, rule, taint=taint)
        path = f"/apis/{V1}/devicetaintrules/{name}"
        await until(lambda: cluster.get(path)["spec"]["taint"]["effect"] == "NoSchedule")

    assert [method for method, *_ in cluster.writes] == ["POST", "PUT"]


async def test_a_busy_gpu_has_a_rule_until_it_is_busy_no_more(cluster, state):
    claims_node(state, busy={"gpu-3"})
    async with keeping(cluster, state) as fence:
        await until(lambda: rules(cluster) == [("gpu-0", ""), ("gpu-0", "gpu-3")])
        await until(lambda: fence.unfenced() == {})
        claims_node(state)
        await until(lambda: rules(cluster) == [("gpu-0", "")])

    assert [method for method, *_ in cluster.writes] == ["POST", "POST", "DELETE"]


async def test_a_deleted_rule_is_created_again(cluster, state):
    (rule,) = fence_of(claims_node(state))
    async with keeping(cluster, state):
        await until(lambda: rules(cluster))
        cluster.remove(f"/apis/{V1}/devicetaintrules/{rule.name}")
        await until(lambda: rules(cluster))


async def test_the_rules_of_an_earlier_leader_are_kept_and_those_of_no_node_deleted(cluster, state):
    (rule,) = fence_of(claims_node(state))
    put(cluster, rule)
    put(cluster, FenceRule(Selector("gpu.nvidia.com", "gone")))
    async with keeping(cluster, state):
        await until(lambda: rules(cluster) == [("gpu-0", "")])

    assert [method for method, *_ in cluster.writes] == ["DELETE"]


async def test_devices_that_are_not_placed_turn_one_rule_into_one_for_each_gpu(cluster, state):
    claims_node(state)
    async with keeping(cluster, state):
        await until(lambda: rules(cluster))
        claims_node(state, others=1)
        await until(lambda: rules(cluster) == [("gpu-0", f"gpu-{i}") for i in range(8)])

    assert [method for method, *_ in cluster.writes][-1] == "DELETE"


async def test_without_the_api_all_claims_nodes_are_unfenced(cluster, state):
    cluster.apis = {}
    claims_node(state)
    state.update_node("exact", an_exact_node("exact"))
    async with keeping(cluster, state) as fence:
        await until(lambda: "serves no DeviceTaintRules" in str(fence.unfenced()))
        assert fence.unfenced().keys() == {"gpu-0"}

    assert cluster.writes == []


async def test_a_refused_rule_is_the_reason(cluster, state):
    cluster.refuse = lambda *_: (403, "forbidden by a policy")
    claims_node(state)
    async with keeping(cluster, state) as fence:
        await until(lambda: "forbidden by a policy" in str(fence.unfenced()))


async def test_a_rule_without_effect_is_the_reason(cluster, state):
    claims_node(state)
    async with keeping(cluster, state, lambda: {"gpu-0": {"gpu-5": 4e9}}) as fence:
        await until(lambda: "enable its feature gate" in str(fence.unfenced()))


async def test_many_nodes_have_few_writes_at_a_time(cluster, state):
    answer, running, most = cluster._answer, 0, 0

    async def slow(request):
        nonlocal running, most
        if request.method != "POST":
            return await answer(request)
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return await answer(request)

    cluster._answer = slow
    for i in range(40):
        claims_node(state, f"gpu-{i}")
    async with keeping(cluster, state):
        await until(lambda: len(rules(cluster)) == 40)

    assert most <= 8
