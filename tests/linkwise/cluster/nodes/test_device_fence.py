"""The DeviceTaintRules of nodes, and what they leave open."""

from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import a_counted_node, a_node, an_exact_node

from linkwise.cluster import keys
from linkwise.cluster.allocations.device_claim import TOLERATION
from linkwise.cluster.nodes.device_fence import (
    FenceRule,
    closures_of,
    fence_of,
    keeps_fence,
    unfenced_reason,
    wanted_rules,
)
from linkwise.cluster.nodes.node import DevicePool
from linkwise.cluster.nodes.taint_rules import RuleObject, Selector

CREATED = "2026-01-02T03:04:05Z"
CREATED_AT = 1_767_323_045.0


def a_claims_node(name="gpu-0", *, others=0, unmanaged=(), busy=(), **fields):
    devices = tuple(f"gpu-{i}" for i in range(8))
    pool = DevicePool(
        name, devices, others=others, unmanaged=frozenset(unmanaged), busy=frozenset(busy)
    )
    return a_node(name, uuids=True, resources={}, pool=pool, **fields)


def stored(rule, *, created=CREATED, **taint):
    body = rule.body("resource.k8s.io/v1")
    body["metadata"] = {**body["metadata"], "creationTimestamp": created}
    body["spec"]["taint"] |= taint
    return msgspec.convert(msgspec.to_builtins(body), RuleObject)


def test_the_rule_of_a_node():
    (rule,) = fence_of(a_claims_node())
    body = msgspec.to_builtins(rule.body("resource.k8s.io/v1beta2"))

    assert body == {
        "apiVersion": "resource.k8s.io/v1beta2",
        "kind": "DeviceTaintRule",
        "metadata": {
            "name": rule.name,
            "labels": {"app.kubernetes.io/managed-by": "linkwise-scorer"},
        },
        "spec": {
            "deviceSelector": {"driver": "gpu.nvidia.com", "pool": "gpu-0"},
            "taint": {"key": "linkwise.dev/placed", "effect": "NoSchedule"},
        },
    }
    assert rule.name.startswith("linkwise-gpu-0-")


def test_each_gpu_has_a_rule_beside_devices_that_are_not_placed():
    rules = list(fence_of(a_claims_node(others=2)))

    assert [rule.selector.device for rule in rules] == [f"gpu-{i}" for i in range(8)]
    assert len({rule.name for rule in rules}) == 8


def test_a_busy_gpu_has_a_rule_of_its_own_whose_taint_no_claim_of_linkwise_tolerates():
    node = a_claims_node(busy={"gpu-6", "gpu-2"}, unmanaged={"gpu-2"})
    rules = list(closures_of(node))

    assert [rule.selector.device for rule in rules] == ["gpu-2", "gpu-6"]
    taint = rules[0].body("resource.k8s.io/v1")["spec"]["taint"]
    assert taint == {"key": keys.BUSY, "effect": "NoSchedule"}
    assert TOLERATION["key"] != keys.BUSY
    names = {rule.name for rule in (*rules, *fence_of(node))}
    assert len(names) == 2 + 7
    assert wanted_rules([node], ()).keys() == names
    # The scorer does not take its own rule for a fault.
    assert not stored(rules[0]).content.hinders


def test_whether_gpus_are_busy_does_not_decide_whether_a_node_is_fenced():
    node = a_claims_node(busy={"gpu-2"})
    (rule,) = fence_of(node)
    assert unfenced_reason(node, {rule.name: stored(rule)}, {}, {}) is None


def test_the_rule_of_a_busy_gpu_stays_while_the_driver_is_away_and_ends_with_the_node():
    (closure,) = closures_of(a_claims_node("away", busy={"gpu-2"}))
    rules = [stored(closure)]

    assert wanted_rules([a_node("away", None, resources={})], rules) == {closure.name: closure}
    assert wanted_rules([], rules) == {}


def test_gpus_that_linkwise_leaves_alone_have_no_rule():
    rules = fence_of(a_claims_node(unmanaged={"gpu-0", "gpu-7"}))

    assert [rule.selector.device for rule in rules] == [f"gpu-{i}" for i in range(1, 7)]


def test_a_replaced_rule_has_the_version_that_was_read():
    (rule,) = fence_of(a_claims_node())
    assert rule.body("v", "17")["metadata"]["resourceVersion"] == "17"


_names = st.from_regex(r"[a-z0-9]([-a-z0-9.]{0,250}[a-z0-9])?", fullmatch=True)


@given(pool=_names, device=st.none() | _names)
def test_a_name_is_valid_whatever_the_pool_is_called(pool, device):
    name = FenceRule(Selector("d", pool, device)).name
    assert len(name) <= 253
    assert name[0].isalnum()
    assert name[-1].isalnum()


def test_pools_with_one_beginning_have_different_names():
    long = "a" * 240
    pools = (long + "b", long + "c", "a")
    names = {FenceRule(Selector("d", pool)).name for pool in pools}
    names.add(FenceRule(Selector("d", "a", "b")).name)
    assert len(names) == 4


@pytest.mark.parametrize(
    ("node", "is_kept"),
    [
        pytest.param(a_claims_node(), False, id="claims node: it has its own"),
        pytest.param(a_node("gpu-0", None, resources={}), True, id="its devices are not known"),
        pytest.param(an_exact_node("gpu-0"), False, id="a plugin offers its GPUs"),
        pytest.param(a_counted_node("gpu-0"), False, id="another mode"),
    ],
)
def test_the_rules_of_a_node_stay_while_its_driver_is_away(node, is_kept):
    assert keeps_fence(node) is is_kept


def test_rules_of_nodes_that_are_gone_are_not_wanted():
    here, gone, away = (a_claims_node(name) for name in ("here", "gone", "away"))
    rules = [stored(rule) for node in (here, gone, away) for rule in fence_of(node)]
    nodes = [here, a_node("away", None, resources={}), an_exact_node("other")]

    assert {rule.selector.pool for rule in wanted_rules(nodes, rules).values()} == {"here", "away"}


def test_a_rule_of_another_name_does_not_stay_for_a_node_whose_driver_is_away():
    (rule,) = fence_of(a_claims_node("away"))
    renamed = msgspec.structs.replace(
        stored(rule), metadata=msgspec.structs.replace(stored(rule).metadata, name="x")
    )
    assert wanted_rules([a_node("away", None, resources={})], [renamed]) == {}


@pytest.mark.parametrize(
    ("change", "error", "bypassed", "reason"),
    [
        pytest.param({}, "", None, None, id="fenced"),
        pytest.param(None, "", None, "is not written yet", id="no rule"),
        pytest.param(None, "forbidden", None, "is not written: forbidden", id="refused"),
        pytest.param({"effect": "None"}, "", None, "is not written yet", id="other effect"),
        pytest.param({"key": "x"}, "", None, "is not written yet", id="other taint"),
        pytest.param({}, "", CREATED_AT - 60, None, id="allocated before the rule"),
        pytest.param({}, "", CREATED_AT + 5, None, id="allocated at the moment of the rule"),
        pytest.param(
            {}, "", CREATED_AT + 11, "enable its feature gate", id="allocated in spite of it"
        ),
    ],
)
def test_the_reason_why_a_node_is_not_fenced(change, error, bypassed, reason):
    node = a_claims_node()
    (rule,) = fence_of(node)
    rules = {} if change is None else {rule.name: stored(rule, **change)}
    times = {} if bypassed is None else {"gpu-3": bypassed}
    found = unfenced_reason(node, rules, {rule.name: error} if error else {}, times)

    assert found is None if reason is None else reason in found


def test_a_node_with_a_rule_for_each_gpu_needs_all_of_them():
    node = a_claims_node(others=1)
    rules = {rule.name: stored(rule) for rule in fence_of(node)}
    assert unfenced_reason(node, rules, {}, {}) is None
    rules.popitem()
    assert unfenced_reason(node, rules, {}, {})


@pytest.mark.parametrize(
    ("device", "is_fenced"),
    [
        pytest.param("gpu-2-mig-1g.10gb-0", True, id="a MIG device"),
        pytest.param("gpu-2", True, id="a GPU that is left alone"),
        pytest.param("gpu-3", False, id="a GPU with a rule"),
    ],
)
def test_claims_may_have_devices_that_have_no_rule(device, is_fenced):
    node = a_claims_node(others=1, unmanaged={"gpu-2"})
    rules = {rule.name: stored(rule) for rule in fence_of(node)}
    found = unfenced_reason(node, rules, {}, {device: CREATED_AT + 11})
    assert (found is None) is is_fenced


def test_an_unreadable_time_of_creation_is_long_ago():
    (rule,) = fence_of(a_claims_node())
    assert stored(rule, created="x").created == 0.0
    assert stored(rule).created == CREATED_AT


def test_a_node_of_another_kind_has_no_rule():
    assert list(fence_of(replace(a_claims_node(), pool=None))) == []
    assert keys.PLACED not in str(list(fence_of(an_exact_node())))
