from collections import Counter
from dataclasses import replace
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.builders import a_machine, a_node, a_pcie_machine, a_seen, a_snapshot, dgx1_v100, exact
from support.strategies import clusters

from linkwise.cluster import keys
from linkwise.cluster.account.node_ledger import Holding
from linkwise.cluster.allocations.record import Allocation
from linkwise.cluster.gang import GangKey
from linkwise.cluster.requests.demand import Demand
from linkwise.planning.cycle.cycle import SETTLING_MAX, SchedulingCycle, in_order, in_turns
from linkwise.planning.gang.exclusion import Exclusion
from linkwise.planning.gang.owners import Owners
from linkwise.planning.gang.unit import Unit, units_of
from linkwise.planning.placement.result import Plan, Refusal
from linkwise.planning.placement.state.snapshot import Snapshot


class Decision(NamedTuple):
    unit: Unit
    outcome: Plan | Refusal
    snapshot: Snapshot


NO_OWNERS = Owners({}, {})


TOMORROW = Exclusion(1_767_225_600.0, "Insufficient rdma/hca")


def a_unit(name, members=1, gpus=1, *, priority=0, age=0, missing=0, **pod):
    """Return a gang; a greater age means that it was created earlier."""
    labels = {keys.POD_GROUP_NAME: name, keys.POD_GROUP_MIN_AVAILABLE: str(members + missing)}
    pods = [
        a_seen(
            gpus,
            f"{name}-{i}",
            labels=labels,
            created=f"2026-01-01T00:00:{59 - age:02}Z",
            priority=priority,
            **pod,
        )
        for i in range(members)
    ]
    (unit,) = units_of(pods, NO_OWNERS)
    return unit


def cycle(snapshot, *units, starving=(), cached_refusals=None, excluded=None):
    cached = cached_refusals or {}
    until = {key: dict.fromkeys(nodes, TOMORROW) for key, nodes in (excluded or {}).items()}
    state = SchedulingCycle(
        is_starving=lambda unit: unit.key.name in starving,
        exclusions=lambda unit: until.get(unit.key, {}),
    )
    decisions = []
    for unit in in_order(units):
        outcome = state.decide(snapshot, unit, cached.get(unit.key))
        decisions.append(Decision(unit, outcome, snapshot))
        if isinstance(outcome, Plan):
            snapshot = outcome.applied_to(snapshot)
    return decisions


def outcomes(decisions):
    return {decision.unit.key.name: decision.outcome for decision in decisions}


def placed(decisions):
    return [name for name, outcome in outcomes(decisions).items() if isinstance(outcome, Plan)]


def order(decisions):
    return [decision.unit.key.name for decision in decisions]


def snapshot_after(decisions):
    last = decisions[-1]
    is_planned = isinstance(last.outcome, Plan)
    return last.outcome.applied_to(last.snapshot) if is_planned else last.snapshot


# ---- Order.


def test_units_are_ordered_by_priority_age_and_name():
    units = [
        a_unit("b", 1),
        a_unit("a", 1),
        a_unit("old", 1, age=9),
        a_unit("urgent", 1, priority=2),
        a_unit("idle", 1, priority=-1, age=30),
    ]

    assert order(cycle(a_snapshot(a_node()), *units)) == ["urgent", "old", "a", "b", "idle"]


def test_each_unit_sees_the_plans_before_it():
    decisions = cycle(a_snapshot(a_node()), a_unit("one", 1, 6), a_unit("two", 1, 6, age=1))

    assert placed(decisions) == ["two"]
    assert "the freest suitable node has 2" in outcomes(decisions)["one"].reason
    assert snapshot_after(decisions).nodes[0].free_mask.bit_count() == 2


def test_smaller_units_pass_a_unit_that_does_not_fit():
    decisions = cycle(a_snapshot(a_node()), a_unit("large", 2, 8, age=9), a_unit("small", 1, 8))

    assert placed(decisions) == ["small"]


def test_an_incomplete_gang_is_not_planned():
    decisions = cycle(a_snapshot(a_node()), a_unit("half", 2, missing=2, age=9), a_unit("whole"))

    assert outcomes(decisions)["half"] == Refusal("2 of 4 members", is_cacheable=False)
    assert placed(decisions) == ["whole"]


# ---- Reservations.


def test_nodes_are_reserved_for_a_starving_unit():
    snapshot = a_snapshot(a_node(), taken={"node-0": (0,)})

    decisions = cycle(snapshot, a_unit("large", 2, 4, age=9), a_unit("small"), starving={"large"})

    assert placed(decisions) == []
    assert outcomes(decisions)["small"].reason == (
        "needs 1 GPU on one node; the freest suitable node has 0; "
        "of 1 node: reserved for the unit that waited longest (1)"
    )


def test_nodes_that_a_starving_unit_can_never_use_stay_open():
    large = a_unit("large", 1, 8, age=9, nodeSelector={"rack": "a"})
    snapshot = a_snapshot(
        a_node("in-use", labels={"rack": "a"}),
        a_node("too-small", a_machine(4), labels={"rack": "a"}),
        a_node("elsewhere", labels={"rack": "b"}),
        taken={"in-use": (0,)},
    )
    small = [a_unit(f"small-{i}", 1, 4) for i in range(4)]

    decisions = cycle(snapshot, large, *small, starving={"large"})

    used = {outcomes(decisions)[name].placements[0].node for name in placed(decisions)}
    assert used == {"too-small", "elsewhere"}
    assert len(placed(decisions)) == 3


@pytest.mark.parametrize(("stays", "kept"), [(True, False), (False, True)])
def test_a_node_that_never_becomes_free_stays_open(stays, kept):
    holding = Holding("team/agent", "agent", exact(0), stays=stays)
    snapshot = a_snapshot(a_node()).hold_all([("node-0", holding)])

    decisions = cycle(snapshot, a_unit("large", 1, 8, age=9), a_unit("small"), starving={"large"})

    assert placed(decisions) == ([] if kept else ["small"])


@pytest.mark.parametrize(("link", "linked"), [("nvlink", {"mesh"}), ("best", {"mesh", "pcie"})])
def test_a_starving_gang_that_requires_nvlink_reserves_only_nodes_with_nvlink(link, linked):
    nodes = [a_node("mesh", dgx1_v100()), a_node("pcie", a_pcie_machine(8, socket=4))]
    snapshot = a_snapshot(*nodes, taken={"mesh": range(5), "pcie": range(5)})
    large = a_unit("large", 2, 4, age=9, annotations={keys.LINK: link})

    refusal = outcomes(cycle(snapshot, large, starving={"large"}))["large"]

    assert refusal.could_use == linked


def test_no_reason_names_what_is_in_other_namespaces():
    secret = a_unit("secret-project", 2, 4, age=9)
    snapshot = a_snapshot(a_node(), taken={"node-0": (0,)})

    decisions = cycle(snapshot, secret, a_unit("small"), starving={"secret-project"})

    assert "secret" not in outcomes(decisions)["small"].reason


def test_the_usable_nodes_of_a_starving_unit_are_computed_once_for_a_refusal():
    snapshot, large = a_snapshot(a_node(), taken={"node-0": (0,)}), a_unit("large", 2, 4, age=9)
    refusal = outcomes(cycle(snapshot, large, starving={"large"}))["large"]

    with snapshot.cache.deadline(lambda: True):
        decisions = cycle(snapshot, large, starving={"large"}, cached_refusals={large.key: refusal})

    assert refusal.could_use == {"node-0"}
    assert outcomes(decisions)["large"] is refusal


def test_units_of_a_higher_priority_pass_a_starving_unit():
    snapshot = a_snapshot(a_node(), taken={"node-0": (0,)})

    decisions = cycle(
        snapshot,
        a_unit("large", 2, 4, age=9),
        a_unit("urgent", priority=1),
        a_unit("small"),
        starving={"large"},
    )

    assert placed(decisions) == ["urgent"]


@pytest.mark.parametrize(
    "large",
    [
        pytest.param(a_unit("large", 2, 8, age=9), id="too large for the cluster"),
        pytest.param(a_unit("large", 1, missing=1, age=9), id="incomplete"),
        pytest.param(
            a_unit("large", gates=(keys.GANG, "theirs"), age=9), id="behind foreign gates"
        ),
    ],
)
def test_no_node_is_reserved_for_a_unit_that_can_never_fit(large):
    assert placed(cycle(a_snapshot(a_node()), large, a_unit("small"), starving={"large"})) == [
        "small"
    ]


def test_no_node_is_reserved_for_a_unit_that_fits_only_on_excluded_nodes():
    snapshot = a_snapshot(a_node("large"), a_node("small", a_machine(4)), taken={"large": (0,)})
    large = a_unit("large", 1, 8, age=9)

    kept = cycle(snapshot, large, a_unit("small", 1, 5), starving={"large"})
    free = cycle(
        snapshot,
        large,
        a_unit("small", 1, 5),
        starving={"large"},
        excluded={large.key: frozenset({"large"})},
    )

    assert placed(kept) == []
    assert placed(free) == ["small"]


@pytest.mark.parametrize(("cpu", "kept"), [("96", False), ("95.9", True)])
def test_no_node_is_reserved_if_pods_without_gpus_use_the_requested_resources(cpu, kept):
    snapshot = a_snapshot(a_node(), taken={"node-0": (0,)})
    agent = Holding("kube-system/agent", "agent", demand=Demand(100))
    requests = {"name": "c", "resources": {"limits": {keys.GPU_WHOLE: 8, "cpu": cpu}}}
    large = a_unit("large", 1, 8, age=9, containers=[requests])

    decisions = cycle(
        snapshot.hold_all([("node-0", agent)]), large, a_unit("small"), starving={"large"}
    )

    assert placed(decisions) == ([] if kept else ["small"])


def test_nodes_are_reserved_for_one_unit_only():
    snapshot = a_snapshot(a_node(), taken={"node-0": (0,)})
    large = [a_unit("first", 1, 8, age=9), a_unit("second", 1, 8, age=8)]

    decisions = cycle(snapshot, *large, a_unit("small"), starving={"first", "second"})

    reasons = {name: outcome.reason for name, outcome in outcomes(decisions).items()}
    assert reasons["first"].startswith("needs 8 GPUs")
    assert "reserved for the unit that waited longest (1)" not in reasons["first"]
    assert "reserved for the unit that waited longest (1)" in reasons["second"]
    assert "reserved for the unit that waited longest (1)" in reasons["small"]


# ---- Cached refusals and excluded nodes.


def test_a_unit_with_a_cached_refusal_is_not_planned_again():
    unit = a_unit("one")
    before = Refusal("as before")

    decisions = cycle(a_snapshot(a_node()), unit, cached_refusals={unit.key: before})

    assert outcomes(decisions) == {"one": before}


def test_a_reservation_holds_while_its_refusal_is_cached():
    snapshot = a_snapshot(a_node(), taken={"node-0": (0,)})
    large = a_unit("large", 1, 8, age=9)

    decisions = cycle(
        snapshot,
        large,
        a_unit("small"),
        starving={"large"},
        cached_refusals={large.key: Refusal("as before")},
    )

    assert placed(decisions) == []


def test_a_replacement_is_placed_next_to_its_gang_if_it_fits():
    labels = {keys.POD_GROUP_NAME: "g", keys.POD_GROUP_MIN_AVAILABLE: "2"}
    there = a_seen(1, "g-0", labels=labels).with_allocation(Allocation("node-1", exact(0)))
    (unit,) = units_of([there, a_seen(1, "g-1", labels=labels)], NO_OWNERS)
    snapshot = a_snapshot(a_node("node-0"), a_node("node-1"))
    full = a_snapshot(a_node("node-0"), a_node("node-1"), taken={"node-1": range(8)})

    assert outcomes(cycle(snapshot, unit))["g"].placements[0].node == "node-1"
    assert outcomes(cycle(full, unit))["g"].placements[0].node == "node-0"


def test_a_gang_that_needs_fewer_members_than_it_has_starts_with_these():
    unit = replace(a_unit("elastic", members=8), needed=3)
    snapshot = a_snapshot(a_node(), taken={"node-0": range(4)})
    full = a_snapshot(a_node(), taken={"node-0": range(6)})

    (all_of_them,) = cycle(a_snapshot(a_node()), unit)
    (fewest,) = cycle(snapshot, unit)
    (refused,) = cycle(full, unit)

    assert len(all_of_them.outcome.placements) == 8
    names = [placement.member.pod.metadata.name for placement in fewest.outcome.placements]
    assert names == ["elastic-0", "elastic-1", "elastic-2"]
    assert isinstance(refused.outcome, Refusal)


def test_a_gang_is_not_placed_on_excluded_nodes():
    nodes = [a_node("node-0"), a_node("node-1")]
    unit = a_unit("one")

    (first,) = cycle(a_snapshot(*nodes), unit)
    failed = first.outcome.placements[0].node
    (second,) = cycle(a_snapshot(*nodes), unit, excluded={unit.key: frozenset({failed})})

    assert second.outcome.placements[0].node != failed
    decisions = cycle(
        a_snapshot(*nodes), unit, excluded={unit.key: frozenset({"node-0", "node-1"})}
    )
    assert placed(decisions) == []
    (refused,) = decisions
    why = "2026-01-01T00:00:00Z (Insufficient rdma/hca)"
    assert f"could not be bound there: node-0 until {why}, node-1" in refused.outcome.reason
    assert placed(
        cycle(a_snapshot(*nodes), unit, excluded={GangKey("x", "y", ""): frozenset({"node-0"})})
    )


# ---- Properties.


_queues = st.lists(
    st.tuples(
        st.integers(1, 4),
        st.sampled_from((1, 1, 2, 4)),
        st.integers(0, 1),
        st.integers(0, 3),
        st.sampled_from((0, 0, 0, 1)),
        st.booleans(),
    ),
    min_size=1,
    max_size=5,
).map(
    lambda all_of: [
        (a_unit(f"g{i}", members, gpus, priority=p, age=age, missing=missing), is_starving)
        for i, (members, gpus, p, age, missing, is_starving) in enumerate(all_of)
    ]
)


@settings(max_examples=50)
@given(clusters(most=3), _queues, st.randoms(use_true_random=False))
def test_no_gpu_is_allocated_twice_no_gang_is_partial_and_arrival_order_does_not_matter(
    snapshot, queue, chance
):
    units = [unit for unit, _ in queue]
    starving = {unit.key.name for unit, is_starving in queue if is_starving}

    decisions = cycle(snapshot, *units, starving=starving)

    taken = Counter(
        (node.node.name, share.i)
        for node in snapshot.nodes
        for holding in node.holdings.values()
        for share in holding.gpus.shares
    )
    for decision in decisions:
        if isinstance(decision.outcome, Plan):
            placements = decision.outcome.placements
            assert [placement.member for placement in placements] == list(decision.unit.members)
            assert all(len(p.gpus) == p.member.gpus for p in placements)
            taken.update((p.node, share.i) for p in placements for share in p.gpus.shares)
    assert set(taken.values()) <= {1}
    assert {
        (node.node.name, i)
        for node in snapshot_after(decisions).nodes
        for i, card in enumerate(node.taken)
        if card.holders
    } == set(taken)
    shuffled = chance.sample(units, len(units))
    assert cycle(replace(snapshot), *shuffled, starving=starving) == decisions


def test_namespaces_of_one_priority_take_turns():
    units = [
        a_unit("a-0", age=9),
        a_unit("a-1", age=8),
        a_unit("a-2", age=7),
        a_unit("b-0", namespace="b"),
        a_unit("b-1", namespace="b", priority=1),
    ]

    assert [u.key.name for u in in_turns(units)] == ["b-1", "a-0", "b-0", "a-1", "a-2"]


def test_of_very_many_gangs_few_wait_for_pods_that_are_ending():
    # No NVLink joins the two GPUs that are free on each node.
    ending = [
        (f"n{i:02}", Holding(f"old-{i}", f"old-{i}", exact(1, 2, 3, 4, 6, 7)))
        for i in range(SETTLING_MAX + 2)
    ]
    snapshot = a_snapshot(*(a_node(name, machine=dgx1_v100()) for name, _ in ending))
    snapshot = snapshot.hold_all(ending)
    state = SchedulingCycle(
        is_starving=lambda _: False,
        ending=ending,
        may_settle=lambda _: True,
    )

    decided = [state.decide(snapshot, a_unit(f"gang-{i}", 2)) for i in range(len(ending))]

    assert [isinstance(each, Plan) for each in decided] == [False] * SETTLING_MAX + [True] * 2
    assert state.settling == SETTLING_MAX
