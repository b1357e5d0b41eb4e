"""Gangs whose members affinity, anti-affinity or topology spread binds to each other."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.builders import (
    a_counted_node,
    a_member,
    a_node,
    a_snapshot,
    exact,
    gated_workers,
    workers,
)

from linkwise.cluster import keys
from linkwise.cluster.allocations.record import Allocation
from linkwise.cluster.gang import Link
from linkwise.planning.placement.coupled import can_be_bound
from linkwise.planning.placement.filtering.coupling import KINDS_MAX
from linkwise.planning.placement.options import PlanOptions
from linkwise.planning.placement.result import Plan, Refusal
from linkwise.planning.placement.schedule import plan
from linkwise.planning.placement.siblings import plan_with_siblings

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
GROUP = "leaderworkerset.sigs.k8s.io/group-key"


def zoned(**zones):
    """Return nodes in zones: `a="12"` are the nodes a1 and a2."""
    return [
        a_node(f"{zone}{i}", labels={HOST: f"{zone}{i}", ZONE: zone})
        for zone, names in zones.items()
        for i in names
    ]


def spread(key, skew=1, app="train", **more):
    rule = {"maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule"}
    selector = {"matchLabels": {"app": app}}
    return {"topologySpreadConstraints": [{**rule, "labelSelector": selector, **more}]}


def terms(key, **selector):
    return {REQUIRED: [{"topologyKey": key, "labelSelector": selector}]}


def apart(key, app="train"):
    return {"affinity": {"podAntiAffinity": terms(key, matchLabels={"app": app})}}


def near(key, app="train"):
    return {"affinity": {"podAffinity": terms(key, matchLabels={"app": app})}}


def exclusive(group):
    """Return what LeaderWorkerSet adds for an exclusive topology."""
    own = {"key": GROUP, "operator": "In", "values": [group]}
    others = [{"key": GROUP, "operator": "Exists"}, {**own, "operator": "NotIn"}]
    return {
        "labels": {GROUP: group},
        "affinity": {
            "podAffinity": terms(HOST, matchExpressions=[own]),
            "podAntiAffinity": terms(HOST, matchExpressions=others),
        },
    }


def counts(found):
    assert isinstance(found, Plan), found
    return Counter(placement.node for placement in found.placements)


def train(count, gpus=1, **pod):
    return workers(count, gpus, labels={"app": "train"}, **pod)


@pytest.mark.parametrize("more", [{}, {"nodeAffinityPolicy": "Ignore"}])
def test_gang_is_spread_over_two_nodes(more):
    snapshot = a_snapshot(a_node("a"), a_node("b"))

    found = plan(snapshot, train(4, **spread(HOST, **more)))

    assert counts(found) == {"a": 2, "b": 2}
    # The two GPUs of each node are chosen together.
    alone = plan(a_snapshot(a_node("a"), a_node("b")), train(2, 2, **apart(HOST)))
    assert found.gpus == alone.gpus


def test_gang_is_spread_over_zones_on_as_few_nodes_as_possible():
    snapshot = a_snapshot(*zoned(a="12", b="12"))

    found = plan(snapshot, train(4, **spread(ZONE)))

    assert sorted(counts(found).values()) == [2, 2]
    assert {name[0] for name in counts(found)} == {"a", "b"}


def test_members_fill_what_is_left_of_the_domains_before_more_are_refused():
    """Zone a has room for two, so b may have three."""
    nodes = zoned(a="1", b="12")
    snapshot = a_snapshot(*nodes, taken={"a1": range(6)})

    assert counts(plan(snapshot, train(5, **spread(ZONE)))) == {"a1": 2, "b1": 3}
    assert isinstance(plan(snapshot, train(6, **spread(ZONE))), Refusal)


def test_spread_that_is_preferred_counts_after_the_bandwidth():
    """Alone the second pod would go to the node that is in use."""
    rule = spread(ZONE, whenUnsatisfiable="ScheduleAnyway")
    nodes = zoned(a="12", b="1")
    snapshot = a_snapshot(*nodes)
    used = []
    for member in train(2, 2, **rule):
        found = plan(snapshot, [member])
        used += counts(found)
        snapshot = found.applied_to(snapshot)

    assert used == ["a1", "b1"]
    # Only zone a has two GPUs with a fast link.
    slow = a_snapshot(*nodes, taken={"b1": (0, 1, 2, 4, 5, 6)})
    slow = plan(slow, train(1, 1, nodeSelector={ZONE: "a"})).applied_to(slow)
    assert counts(plan(slow, train(1, 2, **rule))).keys() <= {"a1", "a2"}


def test_nodes_that_are_closed_to_a_gang_are_domains_of_its_spread():
    snapshot = a_snapshot(*zoned(a="1", b="1", c="1"))
    running = plan(snapshot, train(1, nodeSelector={ZONE: "c"})).applied_to(snapshot)

    assert counts(plan(running.without({"c1"}), train(4, **spread(ZONE)))) == {"a1": 2, "b1": 2}
    # Zone c, which is closed, stays without any.
    assert isinstance(plan(snapshot.without({"c1"}), train(4, **spread(ZONE))), Refusal)


def test_pods_that_run_count_for_the_spread():
    snapshot = a_snapshot(*zoned(a="1", b="1"))
    snapshot = plan(snapshot, train(2, nodeSelector={ZONE: "a"})).applied_to(snapshot)

    found = plan(snapshot, train(2, **spread(ZONE)))

    assert counts(found) == {"b1": 2}


def test_member_without_a_place_by_the_spread_is_refused_with_the_reason():
    snapshot = a_snapshot(a_node("a"), a_node("b", unhealthy=tuple(range(7))))

    found = plan(snapshot, train(4, **spread(HOST)))

    assert isinstance(found, Refusal)
    assert "topology spread constraints of the pod not satisfied (1)" in found.reason


def test_spread_over_a_label_that_no_node_has_is_refused_with_the_reason():
    found = plan(a_snapshot(a_node("a")), train(1, **spread("none")))

    assert isinstance(found, Refusal)
    assert "no label by which the pod is spread (1)" in found.reason


def test_pinned_pod_satisfies_min_domains():
    """A pinned pod has one domain, so the least of fewer than `minDomains` counts as 0."""
    snapshot = a_snapshot(*zoned(a="1", b="1"))

    found = plan(snapshot, train(4, **spread(ZONE, minDomains=2)))

    assert isinstance(found, Refusal)
    assert counts(plan(snapshot, train(4, **spread(ZONE, skew=2, minDomains=2)))) == {
        "a1": 2,
        "b1": 2,
    }


def test_members_with_anti_affinity_have_a_node_each():
    snapshot = a_snapshot(*(a_node(name) for name in "abc"))

    assert set(counts(plan(snapshot, train(3, **apart(HOST)))).values()) == {1}
    found = plan(snapshot, train(4, **apart(HOST)))
    assert isinstance(found, Refusal)
    assert "no two of its pods may be on one node by their anti-affinity" in found.reason


@pytest.mark.parametrize("rules", [apart(HOST), spread(HOST)], ids=["apart", "spread"])
@pytest.mark.parametrize("kind", ["counted", "shares", "unequal"])
def test_members_of_any_kind_have_a_node_each(kind, rules):
    pod = {"labels": {"app": "train"}, **rules}
    if kind == "counted":
        nodes, members = [a_counted_node(name) for name in "ab"], gated_workers(2, 2, **pod)
    elif kind == "shares":
        nodes = [a_node(name, mode="cgpu", card_memory=16) for name in "ab"]
        members = workers(2, 0, limits={keys.GPU_MEM: 2}, **pod)
    else:
        nodes = [a_node(name) for name in "ab"]
        members = [a_member(i + 1, f"worker-{i}", **pod) for i in range(2)]

    assert counts(plan(a_snapshot(*nodes), members)) == {"a": 1, "b": 1}


def test_members_with_anti_affinity_never_share_the_one_node_that_they_insist_on():
    found = plan(a_snapshot(a_node("a")), train(2, **apart(HOST)), PlanOptions(Link.ONE_NODE))

    assert isinstance(found, Refusal)
    assert "the members must not all be on one node (1)" in found.reason


def test_members_with_anti_affinity_by_zone_have_a_zone_each():
    snapshot = a_snapshot(*zoned(a="12", b="12", c="1"))

    found = plan(snapshot, train(3, **apart(ZONE)))

    assert {name[0] for name in counts(found)} == {"a", "b", "c"}
    assert isinstance(plan(snapshot, train(4, **apart(ZONE))), Refusal)


def test_members_with_affinity_share_a_zone():
    """Zone a has the fuller nodes, but only b has room for all."""
    nodes = zoned(a="1", b="12")

    found = plan(a_snapshot(*nodes, taken={"a1": (0,)}), train(16, **near(ZONE)))

    assert counts(found) == {"b1": 8, "b2": 8}


def test_members_that_share_a_zone_are_refused_where_no_node_has_room():
    share = {"limits": {keys.GPU_MEM: 2}, "labels": {"app": "train"}}
    snapshot = a_snapshot(*zoned(a="1"))

    found = plan(snapshot, workers(2, 0, **share, **near(ZONE)))

    assert isinstance(found, Refusal)
    assert "requested GPU resource not offered (1)" in found.reason


def test_members_follow_pods_to_which_they_have_affinity():
    snapshot = a_snapshot(*zoned(a="1", b="1"))
    snapshot = plan(
        snapshot, [a_member(labels={"app": "db"}, nodeSelector={ZONE: "b"})]
    ).applied_to(snapshot)

    assert counts(plan(snapshot, train(2, **near(ZONE, app="db")))) == {"b1": 2}
    found = plan(snapshot, train(2, **near(ZONE, app="cache")))
    assert isinstance(found, Refusal)
    assert "pod affinity not satisfied (2)" in found.reason


def test_workers_follow_the_leader_of_their_gang():
    leader = a_member(4, "leader", labels={"app": "leader"})
    followers = train(2, 4, **near(ZONE, app="leader"))
    snapshot = a_snapshot(*zoned(a="1", b="12"))

    found = plan(snapshot, [leader, *followers])

    assert {name[0] for name in counts(found)} == {"b"}


def test_groups_with_exclusive_topology_have_a_node_each():
    snapshot = a_snapshot(*(a_node(name) for name in "abc"))
    used = []
    for group in ("k0", "k1", "k2"):
        found = plan(snapshot, workers(2, **exclusive(group)))
        used += counts(found)
        snapshot = found.applied_to(snapshot)

    assert sorted(used) == ["a", "b", "c"]
    found = plan(snapshot, workers(2, **exclusive("k3")))
    assert isinstance(found, Refusal)
    assert "pod anti-affinity not satisfied (3)" in found.reason


def test_anti_affinity_of_a_running_pod_keeps_others_away():
    snapshot = a_snapshot(*zoned(a="1", b="1"))
    snapshot = plan(snapshot, [a_member(labels={"app": "db"}, **apart(ZONE))]).applied_to(snapshot)

    assert counts(plan(snapshot, train(2))) == {"b1": 2}
    assert counts(plan(snapshot, workers(8))) == {"b1": 8}


def test_replacement_is_judged_beside_its_siblings():
    nodes = zoned(a="1", b="1")
    first, second = train(2, **spread(HOST))
    snapshot = a_snapshot(*nodes)
    made = plan(snapshot, [first])
    placed = made.placements[0]
    running = made.applied_to(snapshot)

    sibling = Allocation(placed.node, placed.gpus)
    found = plan_with_siblings(running, [second], [sibling])

    assert counts(found).keys() == {"a1", "b1"} - {placed.node}


def test_many_kinds_of_members_are_placed_in_turn():
    """Each member has anti-affinity to the one with its own index."""
    snapshot = a_snapshot(*(a_node(name) for name in "abc"))
    members = [
        a_member(1, f"w-{i}", labels={"index": str(i)}, **apart_by(index=str(i)))
        for i in range(KINDS_MAX + 1)
    ]

    found = plan(snapshot, members)

    assert counts(found).total() == KINDS_MAX + 1
    assert can_be_bound(snapshot, found.placements)


def apart_by(**labels):
    return {"affinity": {"podAntiAffinity": terms(HOST, matchLabels=labels)}}


GANGS = st.sampled_from(
    [
        spread(HOST),
        spread(ZONE),
        spread(ZONE, skew=2, minDomains=3),
        spread(HOST, nodeAffinityPolicy="Ignore"),
        apart(HOST),
        apart(ZONE),
        near(ZONE),
        near(HOST),
        {**spread(HOST), **near(ZONE)},
        {**spread(ZONE), **apart(HOST)},
    ]
)


@settings(max_examples=60, deadline=None)
@given(
    rules=st.lists(GANGS, min_size=1, max_size=2),
    size=st.integers(1, 4),
    gpus=st.sampled_from([1, 3]),
    taken=st.lists(st.integers(0, 8), min_size=5, max_size=5),
    running=st.lists(st.sampled_from(["a1", "a2", "b1", "c1"]), max_size=3),
)
def test_every_plan_can_be_bound(rules, size, gpus, taken, running):
    nodes = zoned(a="12", b="12", c="1")
    used = {node.name: tuple(range(n)) for node, n in zip(nodes, taken, strict=True)}
    others = [
        (node, a_member(0, f"running-{i}", labels={"app": "train"}).holding(exact()))
        for i, node in enumerate(running)
    ]
    snapshot = a_snapshot(*nodes, taken=used).hold_all(others)
    members = [
        a_member(gpus, f"worker-{i}", labels={"app": "train"}, **rules[i % len(rules)])
        for i in range(size)
    ]

    found = plan(snapshot, members)

    if isinstance(found, Plan):
        assert can_be_bound(snapshot, found.placements)
        found.applied_to(snapshot)
