"""The PodDisruptionBudgets that select pods."""

import pytest
from support.servers.informers_harness import watching

from scorer.cache.budget_informer import OF_NAMESPACE_MAX

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
