from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import (
    a_counted_node,
    a_gated_member,
    a_member,
    a_snapshot,
    an_exact_node,
    an_nvswitch_machine,
    gated_workers,
)

from linkwise.cluster.account.node_ledger import Holding, NodeLedger
from linkwise.cluster.allocations.gpus import Counted
from linkwise.cluster.allocations.record import Allocation
from linkwise.cluster.gang import Link
from linkwise.cluster.keys import GANG, NVIDIA_GPU
from linkwise.cluster.nodes.gpu_parts import GPUParts, PartKind
from linkwise.cluster.nodes.node import MachineSource, Node
from linkwise.planning.placement.baselines import best_possible, index_order
from linkwise.planning.placement.explain import why_these
from linkwise.planning.placement.filtering.reasons import Reason
from linkwise.planning.placement.options import PlanOptions
from linkwise.planning.placement.result import Plan, Refusal
from linkwise.planning.placement.schedule import feasible_nodes, plan
from linkwise.planning.placement.siblings import plan_with_siblings
from linkwise.planning.placement.state.snapshot import Snapshot
from linkwise.topology.table import table_of

RACK = "example.com/rack"


def counted_cluster(free: Mapping[str, int], **fields: object) -> Snapshot:
    """Return nodes of NVIDIA's plugin with 8 GPUs each, of which so many are free."""
    return with_used(a_snapshot(*(a_counted_node(name, **fields) for name in free)), free)


def with_used(snapshot: Snapshot, free: Mapping[str, int]) -> Snapshot:
    return snapshot.hold_all(
        (name, Holding("other/pod", f"{name}-other", Counted(NVIDIA_GPU, 8 - number)))
        for name, number in free.items()
        if number < 8
    )


def workers_on(planned: Plan | Refusal) -> dict[str, int]:
    assert isinstance(planned, Plan), planned
    return dict(Counter(placement.node for placement in planned.placements))


def test_gang_that_takes_a_whole_counted_node_has_its_bandwidth():
    planned = plan(counted_cluster({"a": 8}), gated_workers(8))

    assert isinstance(planned, Plan)
    assert planned.counts == {"a": 8}
    assert planned.gpus == {"a": ()}
    assert planned.bandwidth.value == table_of(a_counted_node().machine).bandwidth(255)  # type: ignore[arg-type]
    assert not planned.bandwidth.sets_unknown


def test_gang_on_a_part_of_a_counted_node_has_no_bandwidth():
    planned = plan(counted_cluster({"a": 8}), gated_workers(2, gpus=2))

    assert isinstance(planned, Plan)
    assert planned.bandwidth.value is None
    assert planned.bandwidth.sets_unknown


def test_one_gpu_of_each_node_has_no_unknown_set():
    snapshot = counted_cluster({"a": 1, "b": 1})

    planned = plan(snapshot, gated_workers(2))

    assert isinstance(planned, Plan)
    assert planned.bandwidth.value == 12.0
    assert not planned.bandwidth.sets_unknown


def test_bandwidth_of_unknown_links_is_unknown_on_a_whole_node_too():
    snapshot = counted_cluster({"a": 8}, machine_source=MachineSource.UNKNOWN)

    planned = plan(snapshot, gated_workers(8))

    assert isinstance(planned, Plan)
    assert planned.bandwidth.value is None


@pytest.mark.parametrize(
    ("free", "workers", "expected"),
    [
        pytest.param({"a": 8, "b": 8}, 8, {"a": 8}, id="one node rather than two"),
        pytest.param({"a": 8, "b": 5, "c": 4}, 4, {"c": 4}, id="tightest node"),
        pytest.param({"a": 8, "b": 5}, 4, {"b": 4}, id="a node in use rather than a whole one"),
        pytest.param({"a": 8, "b": 4, "c": 8}, 12, {"a": 8, "b": 4}, id="one whole node is broken"),
        pytest.param({"a": 6, "b": 8, "c": 6}, 12, {"a": 6, "c": 6}, id="no whole node is broken"),
        pytest.param({"a": 8, "b": 8}, 12, {"a": 8, "b": 4}, id="all but one node are filled"),
        pytest.param({"a": 3, "b": 2, "c": 2}, 7, {"a": 3, "b": 2, "c": 2}, id="all nodes"),
    ],
)
def test_plan_by_count_takes_the_tightest_fit(
    free: dict[str, int], workers: int, expected: dict[str, int]
):
    assert workers_on(plan(counted_cluster(free), gated_workers(workers))) == expected


def test_plan_by_count_takes_the_fastest_machines_before_the_tightest_fit():
    fast = a_counted_node("fast", machine=an_nvswitch_machine(8, 18))
    snapshot = with_used(a_snapshot(a_counted_node("slow"), fast), {"slow": 2})

    assert workers_on(plan(snapshot, gated_workers(2))) == {"fast": 2}
    assert workers_on(plan(snapshot, gated_workers(1))) == {"slow": 1}


def test_plan_by_count_stays_in_the_nearest_network_domain():
    racks = {"a": "1", "b": "2", "c": "2"}
    nodes = [a_counted_node(name, labels={RACK: rack}) for name, rack in racks.items()]
    snapshot = with_used(a_snapshot(*nodes, domains=(RACK,)), {"a": 5})

    planned = plan(snapshot, gated_workers(13))

    assert workers_on(planned) == {"b": 8, "c": 5}
    assert isinstance(planned, Plan)
    assert planned.domain == f"{RACK}=2"


RAIL = "example.com/rail"


@pytest.mark.parametrize(
    ("places", "free", "expected"),
    [
        pytest.param("aX bY cZ dZ", (8, 5, 8, 8), {"c": 8, "d": 5}, id="before the tightest fit"),
        pytest.param("aX bY cY dZ", (8, 8, 2, 8), {"a": 8, "d": 5}, id="only the far one fits"),
        pytest.param("aX bY cY dZ", (8, 5, 5, 3), {"a": 8, "b": 5}, id="fewest nodes come first"),
        pytest.param("aX bX cY dY", (8, 7, 8, 5), {"c": 8, "d": 5}, id="tightest of two domains"),
    ],
)
def test_nearest_of_several_network_domains_is_taken(
    places: str, free: tuple[int, ...], expected: dict[str, int]
):
    far = {"a": "1", "b": "2", "c": "2", "d": "1"}
    nodes = [
        a_counted_node(name, labels={RAIL: near, RACK: far[name]}) for name, near in places.split()
    ]
    numbers = {node.name: number for node, number in zip(nodes, free, strict=True)}
    snapshot = with_used(a_snapshot(*nodes, domains=(RAIL, RACK)), numbers)

    assert workers_on(plan(snapshot, gated_workers(13))) == expected


def test_domain_is_nearer_than_a_faster_machine():
    fast = [an_nvswitch_machine(8, 18) if rack == "1" else None for rack in "122"]
    nodes = [
        a_counted_node(name, labels={RACK: rack}, **({"machine": machine} if machine else {}))
        for name, rack, machine in zip("abc", "122", fast, strict=True)
    ]

    planned = plan(a_snapshot(*nodes, domains=(RACK,)), gated_workers(16))

    assert workers_on(planned) == {"b": 8, "c": 8}


def test_slower_machines_are_added_only_where_the_fastest_do_not_suffice():
    def nodes(*fast: str) -> Snapshot:
        machine = {"machine": an_nvswitch_machine(8, 18)}
        return a_snapshot(*(a_counted_node(n, **(machine if n in fast else {})) for n in "abc"))

    assert workers_on(plan(nodes("b", "c"), gated_workers(16))) == {"b": 8, "c": 8}
    assert len(workers_on(plan(nodes("c"), gated_workers(16)))) == 2


def test_node_without_cpu_for_all_fits_as_many_workers_as_it_has_cpu_for():
    snapshot = a_snapshot(a_counted_node("a", cpu=3000), a_counted_node("b", cpu=96000))
    gated = {"schedulingGates": [{"name": GANG}]}
    members = [a_member(0, f"w-{i}", limits={NVIDIA_GPU: 1, "cpu": 1}, **gated) for i in range(10)]

    assert workers_on(plan(snapshot, members)) == {"a": 3, "b": 7}


def test_members_follow_one_another_on_each_node():
    planned = plan(counted_cluster({"a": 4, "b": 8}), gated_workers(12))

    assert isinstance(planned, Plan)
    assert [placement.node for placement in planned.placements] == ["a"] * 4 + ["b"] * 8
    assert {placement.gpus for placement in planned.placements} == {Counted(NVIDIA_GPU, 1)}


def mixed_cluster(exact: int, counted: int) -> Snapshot:
    snapshot = a_snapshot(
        an_exact_node("exact"),
        a_counted_node("counted"),
        taken={"exact": range(exact, 8)} if exact < 8 else {},
    )
    return with_used(snapshot, {"counted": counted})


@pytest.mark.parametrize(
    ("exact", "counted", "workers", "expected"),
    [
        pytest.param(8, 8, 8, {"exact": 8}, id="known set at equal numbers"),
        pytest.param(4, 8, 8, {"counted": 8}, id="counted where the exact ones are too small"),
        pytest.param(4, 4, 8, {"exact": 4, "counted": 4}, id="both where neither suffices"),
    ],
)
def test_gang_is_placed_on_nodes_of_both_kinds(
    exact: int, counted: int, workers: int, expected: dict[str, int]
):
    assert workers_on(plan(mixed_cluster(exact, counted), gated_workers(workers))) == expected


def test_gang_on_both_kinds_has_exact_gpus_and_counts():
    planned = plan(mixed_cluster(4, 4), gated_workers(4, gpus=2))

    assert isinstance(planned, Plan)
    assert planned.gpus == {"exact": (0, 1, 2, 3), "counted": ()}
    assert planned.counts == {"counted": 4}
    assert planned.bandwidth.value is None


def test_fewer_nodes_are_better_than_known_sets():
    nodes = [an_exact_node("exact-0"), an_exact_node("exact-1"), a_counted_node("counted")]
    snapshot = a_snapshot(*nodes, taken={"exact-0": range(4), "exact-1": range(4)})

    assert workers_on(plan(snapshot, gated_workers(8))) == {"counted": 8}


@pytest.mark.parametrize(
    ("links", "expected"),
    [
        pytest.param(18, "counted", id="faster machine"),
        pytest.param(1, "exact", id="slower machine"),
    ],
)
def test_known_bandwidth_of_a_whole_node_is_compared_with_that_of_a_set(links: int, expected: str):
    counted = a_counted_node("counted", machine=an_nvswitch_machine(8, links))

    planned = plan(a_snapshot(an_exact_node("exact"), counted), gated_workers(8))

    assert workers_on(planned) == {expected: 8}
    best = best_possible(a_snapshot(an_exact_node("exact"), counted), gated_workers(8))
    assert isinstance(planned, Plan)
    assert best.value == planned.bandwidth.value


def test_nodes_of_both_kinds_are_considered():
    snapshot = with_used(
        a_snapshot(an_exact_node("exact"), a_counted_node("large"), a_counted_node("small")),
        {"small": 2},
    )

    on_one, on_several = plan(snapshot, gated_workers(4)), plan(snapshot, gated_workers(12))

    assert isinstance(on_one, Plan)
    assert isinstance(on_several, Plan)
    assert why_these(on_one) == "of the 2 nodes that take all 4 now, exact is the best"
    assert on_several.nodes_considered == 3


def test_set_that_is_not_known_is_not_preferred_to_a_known_one_on_a_slower_machine():
    counted = a_counted_node("counted", machine=an_nvswitch_machine(8, 18))

    planned = plan(a_snapshot(an_exact_node("exact"), counted), gated_workers(4))

    assert workers_on(planned) == {"exact": 4}


@pytest.mark.parametrize(
    ("racks", "expected"),
    [
        pytest.param(("1", "2"), "counted", id="exact nodes in two racks"),
        pytest.param(("1", "1"), "exact", id="exact nodes in one rack"),
    ],
)
def test_nearer_network_domain_is_better_than_known_sets(racks: tuple[str, str], expected: str):
    nodes = [
        *(an_exact_node(f"exact-{i}", labels={RACK: rack}) for i, rack in enumerate(racks)),
        *(a_counted_node(f"counted-{i}", labels={RACK: "3"}) for i in range(2)),
    ]

    planned = plan(a_snapshot(*nodes, domains=(RACK,)), gated_workers(16))

    assert workers_on(planned) == {f"{expected}-{i}": 8 for i in range(2)}


def test_refusal_counts_the_workers_that_fit_on_nodes_of_both_kinds():
    refused = plan(mixed_cluster(4, 3), gated_workers(8))

    assert isinstance(refused, Refusal)
    assert refused.reason == ("needs 8 GPUs as 8 × 1 GPU; 7 of 8 workers fit now, on 2 of 2 nodes")


def test_single_pod_is_refused_with_the_freest_node():
    refused = plan(counted_cluster({"a": 3, "b": 1}), [a_gated_member(4)])

    assert isinstance(refused, Refusal)
    assert refused.reason == (
        "needs 4 GPUs on one node; the freest suitable node has 3; "
        "of 2 nodes: too few free GPUs (2)"
    )


def test_members_of_unequal_sizes_are_placed_on_nodes_of_both_kinds():
    members = [a_gated_member(6, "big"), a_gated_member(4, "small-0"), a_gated_member(2, "small-1")]

    planned = plan(mixed_cluster(6, 6), members)

    assert isinstance(planned, Plan)
    assert planned.counts == {"counted": 6}
    assert len(planned.gpus["exact"]) == 6


def test_unequal_members_that_stay_together_fit_a_counted_node():
    members = [a_gated_member(6, "big"), a_gated_member(2, "small")]

    planned = plan(counted_cluster({"a": 7, "b": 8}), members, PlanOptions(Link.ONE_NODE))

    assert workers_on(planned) == {"b": 2}


def test_gang_that_requires_nvlink_is_counted_only_where_any_set_is_connected():
    switched = a_counted_node("switched", machine=an_nvswitch_machine(8, 18))
    members, options = gated_workers(2, gpus=2), PlanOptions(Link.NVLINK)

    on_mesh = plan(counted_cluster({"a": 8}), members, options)
    on_switch = plan(a_snapshot(a_counted_node("mesh"), switched), members, options)

    assert isinstance(on_mesh, Refusal)
    assert "no free set connected by NVLink alone (1)" in on_mesh.reason
    assert workers_on(on_switch) == {"switched": 2}


def test_nothing_is_planned_while_the_plugin_restarts():
    restarting = a_counted_node("a", resources={NVIDIA_GPU: 0})

    refused = plan(a_snapshot(restarting), gated_workers(1))

    assert isinstance(refused, Refusal)


def test_nothing_is_planned_on_an_unaccounted_counted_node():
    snapshot = a_snapshot(a_counted_node("a"))
    ledger = replace(snapshot.ledger.nodes["a"], unaccounted="an old pod has GPUs by its record")
    nodes = {"a": ledger}
    snapshot = replace(snapshot, ledger=replace(snapshot.ledger, nodes=nodes))

    refused = plan(snapshot, gated_workers(1))

    assert isinstance(refused, Refusal)
    assert "GPUs in use without a record (1)" in refused.reason


def test_replacement_returns_to_the_counted_node_of_its_gang():
    planned = plan_with_siblings(
        counted_cluster({"a": 2, "b": 1}),
        gated_workers(1),
        [Allocation("a", Counted(NVIDIA_GPU, 1))],
    )

    assert workers_on(planned) == {"a": 1}


def test_node_with_more_replicas_than_a_machine_has_gpus_is_counted():
    replicas = a_counted_node("a", machine=None, resources={NVIDIA_GPU: 40})

    planned = plan(a_snapshot(replicas), gated_workers(20))

    assert workers_on(planned) == {"a": 20}
    assert isinstance(planned, Plan)
    assert planned.bandwidth.value is None


def test_feasible_nodes_include_counted_ones():
    assert feasible_nodes(mixed_cluster(1, 1), gated_workers(2)) == {"exact", "counted"}


def test_baselines_of_a_counted_gang_are_whole_nodes_by_name():
    snapshot = counted_cluster({"a": 4, "b": 8})

    order = index_order(snapshot, gated_workers(8))
    best = best_possible(snapshot, gated_workers(8))

    assert order is not None
    assert order.gpus == {"a": (), "b": ()}
    assert order.bandwidth.value is None
    assert best.nodes == 1


def fewest_nodes(capacities: Sequence[int], workers: int) -> int | None:
    for count in range(1, len(capacities) + 1):
        if any(sum(some) >= workers for some in combinations(capacities, count)):
            return count
    return None


@given(
    free=st.lists(st.integers(0, 8), min_size=1, max_size=6),
    is_exact=st.lists(st.booleans(), min_size=6, max_size=6),
    workers=st.integers(1, 20),
    each=st.sampled_from([1, 2, 4]),
)
def test_plan_is_whole_on_the_fewest_nodes_and_never_exceeds_what_is_free(
    free: list[int], is_exact: list[bool], workers: int, each: int
):
    def node(i: int) -> Node:
        return an_exact_node(f"n{i}") if is_exact[i] else a_counted_node(f"n{i}")

    taken = {f"n{i}": range(n, 8) for i, n in enumerate(free) if is_exact[i] and n < 8}
    used = {f"n{i}": n for i, n in enumerate(free) if not is_exact[i]}
    snapshot = with_used(a_snapshot(*map(node, range(len(free))), taken=taken), used)
    expected = fewest_nodes([n // each for n in free], workers)

    planned = plan(snapshot, gated_workers(workers, each))

    assert isinstance(planned, Plan) == (expected is not None)
    if isinstance(planned, Plan):
        assert len(planned.gpus) == expected
        after: dict[str, NodeLedger] = dict(planned.applied_to(snapshot).ledger.nodes)
        for i, n in enumerate(free):
            here = [p for p in planned.placements if p.node == f"n{i}"]
            left = n - len(here) * each
            ledger = after[f"n{i}"]
            assert left >= 0
            assert ledger.gpus_free == left
            assert all(bool(p.gpus.shares) == is_exact[i] for p in here)


REPLICAS = GPUParts(PartKind.REPLICA, 8, 2)


def test_no_gang_is_planned_on_parts_of_gpus():
    planned = plan(counted_cluster({"a": 8}, parts=REPLICAS), in_gang(gated_workers(2)))

    assert isinstance(planned, Refusal)
    assert str(Reason.PARTS) in planned.reason


def test_a_gang_is_planned_beside_parts_of_gpus():
    nodes = a_counted_node("a", parts=REPLICAS), a_counted_node("b")

    planned = plan(a_snapshot(*nodes), in_gang(gated_workers(2)))

    assert workers_on(planned) == {"b": 2}


def test_a_single_pod_by_count_gets_parts_of_gpus():
    planned = plan(counted_cluster({"a": 8}, parts=REPLICAS), gated_workers(1, gpus=2))

    assert workers_on(planned) == {"a": 1}
    assert isinstance(planned, Plan)
    assert planned.bandwidth.sets_unknown


def in_gang(members):
    return [replace(member, gang="team/g") for member in members]
