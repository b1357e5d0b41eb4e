from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import a_node, a_snapshot

from linkwise.cluster import keys
from linkwise.cluster.account.node_ledger import Holding, NodeLedger
from linkwise.cluster.allocations.gpus import Counted, Exact, GPUShare
from linkwise.cluster.keys import NVIDIA_GPU
from linkwise.topology.catalogue import entry
from linkwise.views.analysis.fleet import fleet_of, nodes_by_free_gpus, usage_of

DGX = entry("dgx1-v100").machine
T4 = entry("t4x4").machine


def whole(pod: str, *gpus: int) -> Holding:
    return Holding(pod, pod, Exact(tuple(GPUShare(i) for i in gpus)))


def only_node(node, *holdings: Holding, new: frozenset[str] = frozenset(), **change):
    ledger = NodeLedger.empty(node)
    for holding in holdings:
        ledger = ledger.hold(holding)
    (shown,) = fleet_of([replace(ledger, **change)], new)
    return shown


def test_whole_gpus_are_free_taken_or_placed_now():
    shown = only_node(a_node("n", DGX), whole("a/p", 0, 3), whole("b/q", 7), new=frozenset({"b/q"}))

    assert shown.states == "#..#...+"
    assert (shown.free, shown.stranded) == (5, 5)
    assert shown.used == 38
    assert [(h.namespace, h.name, h.gpus, h.is_new) for h in shown.pods] == [
        ("a", "p", (0, 3), False),
        ("b", "q", (7,), True),
    ]


def test_an_empty_node_strands_nothing():
    shown = only_node(a_node("n", DGX))

    assert (shown.states, shown.used, shown.free, shown.stranded) == ("." * 8, 0, 8, 0)
    assert shown.links is None


def test_bandwidth_of_free_gpus_is_shown_with_the_best():
    shown = only_node(a_node("n", DGX), whole("a/p", 0, 1, 2, 4, 5, 6))

    have, best = shown.links
    assert have < best


def test_a_single_free_gpu_has_no_links():
    assert only_node(a_node("n", DGX), whole("a/p", *range(7))).links is None


def test_shares_are_shown_as_ninths():
    node = a_node("n", T4, "core_mem", card_memory=15)
    shown = only_node(
        node,
        Holding("a/p", "p", Exact((GPUShare(0, mem=1, core=5),))),
        Holding("a/q", "q", Exact((GPUShare(1, mem=15, core=100),))),
    )

    assert shown.states == "1900"
    assert shown.free == 2
    assert shown.pods[0].amount == "1 GiB, 5 %"


def test_gpus_of_nvidias_plugin_are_counted():
    shown = only_node(
        a_node("n", T4, "default", resources={keys.NVIDIA_GPU: 4}),
        Holding("a/p", "p", Counted(NVIDIA_GPU, 3)),
    )

    assert shown.states == ".ccc"
    assert shown.pods[0].amount == "3 by count"


def test_unhealthy_cards_and_nodes_are_problems():
    shown = only_node(a_node("n", DGX, unhealthy=(1,), cordoned=(2,), ready=False))

    assert shown.states == ".xo....."
    assert shown.problems == ("not ready", "2 GPUs unhealthy or cordoned")


def test_unknown_holders_leave_nothing_free():
    shown = only_node(a_node("n", DGX), unaccounted="a/p has no record")

    assert shown.states == "?" * 8
    assert shown.free == 0


@pytest.mark.parametrize("label", keys.NODE_POOLS)
def test_the_pool_is_the_label_of_the_provider(label):
    assert only_node(a_node("n", DGX, labels={label: "train"})).pool == "train"


@given(st.lists(st.sets(st.integers(0, 7)), max_size=6))
def test_counts_count_every_node_with_free_gpus_once(taken):
    nodes = [a_node(f"n-{i}", DGX) for i in range(len(taken))]
    snapshot = a_snapshot(*nodes, taken={f"n-{i}": gpus for i, gpus in enumerate(taken) if gpus})

    counts = nodes_by_free_gpus(fleet_of(snapshot.nodes))

    assert sum(free * count for free, count in counts.items()) == sum(8 - len(t) for t in taken)
    assert list(counts) == sorted(counts)


def test_usage_sums_what_each_namespace_holds_the_most_first():
    dgx = NodeLedger.empty(a_node("n", DGX)).hold(whole("b/p", 0)).hold(whole("a/q", 1, 2))
    share = NodeLedger.empty(a_node("s", T4, "core_mem", card_memory=15))
    share = share.hold(Holding("a/r", "r", Exact((GPUShare(0, mem=3, core=5),))))

    shown = usage_of([dgx, share])

    assert [(u.namespace, u.gpus, u.memory, u.pods, len(u.nodes)) for u in shown] == [
        ("a", 2, 3, 2, 2),
        ("b", 1, 0, 1, 1),
    ]
