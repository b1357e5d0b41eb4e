from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.builders import a_machine, a_node, a_pcie_machine, an_nvswitch_machine, dgx1_v100
from support.strategies import machines

from linkwise.cluster import keys
from linkwise.cluster.account.node_ledger import Holding, NodeLedger
from linkwise.cluster.account.slots import (
    FreeDomains,
    FreeSets,
    PartlyFreeNode,
    free_domains,
    free_slots,
)
from linkwise.cluster.allocations.gpus import Counted, Exact, GPUShare
from linkwise.cluster.nodes.node import DevicePool, MachineSource
from linkwise.topology.machine import mask_of
from linkwise.topology.table import table_of

SWITCHED = an_nvswitch_machine(8, 12)


def ledger_with(node, *pods, gang=None):
    """Return the ledger of a node; each pod holds GPUs, by their indices or by their number."""
    ledger = NodeLedger.empty(node)
    for number, gpus in enumerate(pods):
        name = f"{node.name}-{number}"
        is_counted = isinstance(gpus, int)
        held = Counted(keys.NVIDIA_GPU, gpus) if is_counted else Exact(tuple(map(GPUShare, gpus)))
        ledger = ledger.hold(Holding(f"team/{name}", name, held, gang=gang))
    return ledger


def most_disjoint(gpus, sets):
    """Return the most disjoint sets within GPUs by trying all."""
    within = [s for s in sets if s <= gpus]
    return max((1 + most_disjoint(gpus - s, within) for s in within), default=0)


def numbers(group):
    return {sets.size: (sets.fastest, sets.total, sets.together) for sets in group.sets}


@given(st.data(), machines(2, 6), st.integers(1, 3))
@settings(max_examples=60)
def test_numbers_of_sets_are_those_of_a_search_through_all_sets(data, machine, count):
    gpus = range(machine.n)
    taken = [data.draw(st.sets(st.sampled_from(gpus))) for _ in range(count)]
    nodes = [a_node(f"n{i}", machine) for i in range(count)]
    ledgers = [
        ledger_with(node, *([sorted(held)] if held else []))
        for node, held in zip(nodes, taken, strict=True)
    ]
    table = table_of(machine)

    (group,) = free_slots(ledgers)

    free = [set(gpus) - held for held in taken]
    for sets in group.sets:
        every = [frozenset(each) for each in combinations(gpus, sets.size)]
        best = max(table.bandwidth(mask_of(each)) for each in every)
        fastest = [each for each in every if table.bandwidth(mask_of(each)) == best]
        assert sets.fastest == sum(most_disjoint(each, fastest) for each in free)
        assert sets.total == sum(most_disjoint(each, every) for each in free)
        assert (sets.bandwidth or 0) == round(best, 1)
    assert [node.free for node in group.partly_free] == sorted(
        (len(each) for each in free if 0 < len(each) < machine.n), reverse=True
    )


def test_free_gpus_on_many_nodes_would_make_more_sets_together():
    ledgers = [ledger_with(a_node(f"n{i}", SWITCHED), [0]) for i in range(8)]

    (group,) = free_slots(ledgers)

    assert (group.nodes, group.free) == (8, 56)
    assert numbers(group) == {
        8: (0, 0, 7),
        4: (8, 8, 14),
        2: (24, 24, 28),
        1: (56, 56, 56),
    }
    assert group.partly_free[0] == PartlyFreeNode("n0", 7, 1, 0, ("team/n0-0",))


def test_nodes_with_the_most_free_gpus_come_first_with_their_units():
    half = ledger_with(a_node("a"), [0, 3], [1, 2], gang="team/bert")
    unhealthy = ledger_with(a_node("b", unhealthy=(5,), cordoned=(6,)))
    cordoned_in_use = ledger_with(a_node("c", cordoned=(0,)), [0])

    (group,) = free_slots([half, unhealthy, cordoned_in_use])

    assert group.partly_free == (
        PartlyFreeNode("c", 7, 1, 0, ("team/c-0",)),
        PartlyFreeNode("b", 6, 0, 2, ()),
        PartlyFreeNode("a", 4, 4, 0, ("team/bert",)),
    )


@pytest.mark.parametrize(
    ("machine", "fastest"),
    [pytest.param(SWITCHED, 1, id="all sets equal"), pytest.param(dgx1_v100(), None, id="mesh")],
)
def test_sets_that_nvidias_plugin_chooses_are_fastest_only_if_all_sets_are(machine, fastest):
    whole = ledger_with(a_node("a", machine, "default"))
    part = ledger_with(a_node("b", machine, "default"), 5)

    (group,) = free_slots([part])
    (of_both,) = free_slots([whole, part])

    assert group.counted
    assert group.free == 3
    assert numbers(group)[2] == (fastest, 1, 1)
    assert numbers(group)[1] == (3, 3, 3)
    assert group.partly_free == (PartlyFreeNode("b", 3, 5, 0, ("team/b-0",)),)
    assert numbers(of_both)[8] == (1, 1, 1)


def test_unknown_links_leave_the_bandwidth_open():
    node = a_node("a", a_machine(4), machine_source=MachineSource.UNKNOWN)

    (group,) = free_slots([ledger_with(node)])

    assert group.machine_class is None
    assert group.sets == (
        FreeSets(4, None, 1, 1, 1),
        FreeSets(2, None, None, 2, 2),
        FreeSets(1, None, 4, 4, 4),
    )


@pytest.mark.parametrize(
    "closed",
    [
        pytest.param({"ready": False}, id="not ready"),
        pytest.param({"unschedulable": True}, id="unschedulable"),
        pytest.param({"preparing": True}, id="tables are being built"),
    ],
)
def test_nodes_that_take_no_pods_have_no_free_sets(closed):
    (group,) = free_slots([ledger_with(a_node("a", **closed)), ledger_with(a_node("b"))])

    assert (group.nodes, group.closed, group.free) == (2, 1, 8)
    assert numbers(group)[8] == (1, 1, 1)


def test_no_tables_are_built_of_a_machine_that_the_scorer_refuses():
    refused = a_node("a", an_nvswitch_machine(8, 17), machine_refused="too many machines")

    (group,) = free_slots([ledger_with(refused)])

    assert (group.machine_class, group.nodes, group.closed, group.free) == (None, 1, 1, 0)


def test_only_nodes_that_offer_whole_gpus_count():
    modes = ("share", "core_mem", "timeslice", "mig", "disabled")
    shared = [a_node(mode, a_machine(4), mode, card_memory=15) for mode in modes]

    assert free_slots([ledger_with(node) for node in (*shared, a_node("cpu", None))]) == ()


def test_nodes_are_grouped_by_pool_model_and_machine():
    labels = {keys.NODE_POOLS[0]: "b"}
    nodes = [
        a_node("a0", SWITCHED, labels=labels),
        a_node("a1", SWITCHED),
        a_node("a2", dgx1_v100()),
        a_node("a3", SWITCHED),
        a_node("a4", SWITCHED, labels={**labels, keys.GFD_PRODUCT: "NVIDIA-A100"}),
    ]

    groups = free_slots(map(ledger_with, nodes))

    assert sorted((each.pool or "", each.model or "", each.nodes) for each in groups) == [
        ("", "", 1),
        ("", "", 2),
        ("b", "", 1),
        ("b", "NVIDIA-A100", 1),
    ]


def test_claims_nodes_are_groups_of_their_own_and_closed_without_slices():
    devices = tuple(f"gpu-{i}" for i in range(8))
    pools = {
        "a0": None,
        "a1": DevicePool("a1", devices),
        "a2": DevicePool("a2", devices, missing="the driver's slices are missing"),
    }
    nodes = [a_node(name, SWITCHED, pool=pool) for name, pool in pools.items()]

    exact, claims = free_slots(map(ledger_with, nodes))

    assert (exact.claims, exact.nodes, exact.closed, exact.free) == (False, 1, 0, 8)
    assert (claims.claims, claims.nodes, claims.closed, claims.free) == (True, 2, 1, 8)


def test_sixteen_gpus_are_a_whole_node_and_two_sets_of_eight():
    machine = a_pcie_machine(16, socket=8)

    (group,) = free_slots([ledger_with(a_node("a", machine), [0])])

    assert [sets.size for sets in group.sets] == [16, 8, 4, 2, 1]
    assert [sets.fastest for sets in group.sets] == [0, 1, 3, 7, 15]


def test_a_domain_is_free_if_all_its_nodes_are_whole_and_take_pods():
    def node(name, rack, **more):
        return a_node(name, SWITCHED, labels={"rack": rack}, **more)

    ledgers = [
        *(ledger_with(node(f"a{i}", "a")) for i in range(2)),
        ledger_with(node("b0", "b")),
        ledger_with(node("b1", "b"), [0]),
        ledger_with(node("c0", "c", unhealthy=(1,))),
        ledger_with(a_node("nowhere", SWITCHED), [0]),
    ]

    assert free_domains(ledgers, ("rack", "absent")) == (FreeDomains("rack", 3, 1, 16),)
