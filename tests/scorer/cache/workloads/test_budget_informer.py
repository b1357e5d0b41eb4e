"""The PodDisruptionBudgets that select pods."""

import msgspec
import pytest
from support.builders import placed_pod
from support.servers.informers_harness import watching
from support.waiting import until

from linkwise.cluster import keys
from linkwise.cluster.allocations.gpus import GPUShare
from linkwise.cluster.objects.pod import Pod
from linkwise.planning.gang.budgets import OF_NAMESPACE_MAX
from linkwise.planning.gang.pod_info import pod_info

BUDGETS = "/apis/policy/v1/namespaces/team/poddisruptionbudgets"


def put(cluster, name, selector, allowed=1):
    spec = {} if selector is None else {"selector": selector}
    status = {"disruptionsAllowed": allowed}
    cluster.put(f"{BUDGETS}/{name}", {"metadata": {}, "spec": spec, "status": status})


@pytest.mark.parametrize(
    ("selector", "is_selected"),
    [
        pytest.param({"matchLabels": {"app": "a"}}, True, id="its label"),
        pytest.param({"matchLabels": {"app": "b"}}, False, id="another value"),
        pytest.param(
            {"matchExpressions": [{"key": "app", "operator": "Exists"}]}, True, id="expression"
        ),
        pytest.param({}, True, id="empty selects all"),
        pytest.param(None, False, id="none selects none"),
        pytest.param(
            {"matchLabels": {f"app-{i}": "b" for i in range(17)}}, True, id="too many conditions"
        ),
    ],
)
async def test_a_budget_selects_pods_by_their_labels(cluster, selector, is_selected):
    put(cluster, "one", selector, allowed=3)
    async with watching(cluster) as informers:
        selected = {"team/one"} if is_selected else set()
        assert informers.budgets.selecting("team", {"app": "a"}) == selected
        assert informers.budgets.selecting("other", {"app": "a"}) == set()
        assert informers.budgets.allowed == {"team/one": 3}


async def test_pods_of_a_namespace_with_too_many_budgets_are_not_compared(cluster):
    for i in range(OF_NAMESPACE_MAX + 1):
        put(cluster, f"budget-{i}", {})
    async with watching(cluster) as informers:
        assert informers.budgets.selecting("team", {}) is None
        cluster.remove(f"{BUDGETS}/budget-0")
        await until(lambda: len(informers.budgets.reflector.items) == OF_NAMESPACE_MAX)
        assert len(informers.budgets.selecting("team", {})) == OF_NAMESPACE_MAX


async def test_of_more_budgets_than_are_compared_only_names_are_kept(cluster):
    for i in range(3 * OF_NAMESPACE_MAX):
        put(cluster, f"budget-{i}", {"matchLabels": {"app": "a"}})
    async with watching(cluster) as informers:
        kept = [each for each in informers.budgets.reflector.items.values() if each.conditions]
        assert len(kept) == OF_NAMESPACE_MAX


def a_bound_pod(name, labels):
    raw = placed_pod(name, {keys.GPU_WHOLE: 1}, "gpu-0", GPUShare(0), labels=labels)
    raw["metadata"]["namespace"] = "team"
    return pod_info(msgspec.convert(raw, Pod))


IN = {"matchExpressions": [{"key": "rank", "operator": "In", "values": ["0", "1"]}]}


@pytest.mark.parametrize(
    ("budgets", "reason"),
    [
        pytest.param([], None, id="none"),
        pytest.param([("a", 4, {"matchLabels": {"app": "bert"}})], None, id="enough"),
        pytest.param(
            [("a", 3, {"matchLabels": {"app": "bert"}})],
            "PodDisruptionBudget a lets 3 of its 4 pods be evicted",
            id="one too few",
        ),
        pytest.param([("a", 0, {"matchLabels": {"app": "else"}})], None, id="others"),
        pytest.param([("a", 0, {})], "PodDisruptionBudget a lets 0 of its 4", id="empty: all"),
        pytest.param([("a", 0, None)], None, id="no selector: none"),
        pytest.param([("a", 1, IN)], "PodDisruptionBudget a lets 1 of its 2", id="expression"),
        pytest.param(
            [("a", 4, {}), ("b", 2, IN)], "a selects a pod of another one", id="two for one pod"
        ),
    ],
)
async def test_a_budget_that_does_not_allow_all_is_named(cluster, budgets, reason):
    for name, allowed, selector in budgets:
        put(cluster, name, selector, allowed)
    pods = [a_bound_pod(f"bert-{i}", {"app": "bert", "rank": str(i)}) for i in range(4)]
    async with watching(cluster) as informers:
        assert (reason or "None") in str(informers.budgets.blocker(pods))
