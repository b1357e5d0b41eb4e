"""Whether disruption budgets let all pods of a gang be evicted."""

import msgspec
import pytest

from scorer.commit.disruption_budgets import DisruptionBudget, blocking_budget

PODS = [{"app": "bert", "rank": str(i)} for i in range(4)]
IN = {"matchExpressions": [{"key": "rank", "operator": "In", "values": ["0", "1"]}]}


def a_budget(name, allowed, selector):
    status = {"disruptionsAllowed": allowed}
    raw = {"metadata": {"name": name}, "spec": {"selector": selector}, "status": status}
    return msgspec.convert(raw, DisruptionBudget)


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
            [("a", 4, {}), ("b", 2, IN)], "b selects a pod of another one", id="two for one pod"
        ),
    ],
)
def test_a_budget_that_does_not_allow_all_is_named(budgets, reason):
    found = blocking_budget([a_budget(*each) for each in budgets], PODS)
    assert (reason or "None") in str(found)
