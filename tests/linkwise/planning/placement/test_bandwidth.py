from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import a_node, a_snapshot, dgx1_v100

from linkwise.cluster.nodes.node import MachineSource
from linkwise.cluster.nodes.node_reader import uniform_machine
from linkwise.planning.placement.assignment.node_assignment import NodeAssignment
from linkwise.planning.placement.bandwidth import LinkKind, bandwidth_over
from linkwise.topology.catalogue import entry
from linkwise.topology.machine import gpus_of, mask_of


def assignment(*gpus: int, machine=None, **node) -> NodeAssignment:
    snapshot = a_snapshot(a_node(machine=machine or dgx1_v100(), **node))
    return NodeAssignment(snapshot.nodes[0], snapshot.tables["node-0"], mask_of(gpus))


def value(assignments, nic):
    return bandwidth_over(assignments, nic).value


UNKNOWN = {"machine": uniform_machine(4), "machine_source": MachineSource.UNKNOWN}


def h100(*gpus: int) -> NodeAssignment:
    return assignment(*gpus, machine=entry("dgx-h100").machine)


def l4(*gpus: int) -> NodeAssignment:
    return assignment(*gpus, machine=entry("l4x8").machine)


@pytest.mark.parametrize(
    ("assignments", "nic", "bandwidth"),
    [
        ([assignment(0, 1, 2, 3)], None, 55.2),
        ([assignment(0, 1, 2, 3)], 10.0, 55.2),
        ([assignment(0)], 10.0, None),
        ([assignment(0, 3), assignment(0, 1)], None, 8.0),
        ([assignment(0, 3), assignment(0, 1)], 100.0, 8.0),
        ([assignment(0, 3), assignment(0, 1)], 6.0, 4.0),
        ([assignment(0, 3)] * 4, 12.0, 6.857143),
        ([assignment(0, 3), assignment(1)], None, 9.0),
        ([assignment(0), assignment(1)], None, 12.0),
        ([assignment(0), assignment(1)], 10.0, 10.0),
        ([assignment(0, 1), assignment(0, 1, **UNKNOWN)], 12.5, None),
        ([assignment(0, 1), assignment(0, **UNKNOWN)], None, 9.0),
        ([h100(0, 1)] * 4, None, 54.857143),
        ([h100(0, 1)] * 4, 400.0, 54.857143),
        ([h100(0, 1)] * 4, 50.0, 28.571429),
        ([h100(*range(8))], None, 211.885714),
        ([l4(0, 1)] * 4, None, 5.714286),
        ([l4(0, 1)] * 4, 12.5, 5.714286),
        ([l4(*range(8))], 12.5, 3.428571),
        ([assignment(0, **UNKNOWN), assignment(1, **UNKNOWN)], 12.5, 12.5),
    ],
    ids=[
        "one node",
        "one node has no use for NICs",
        "one GPU",
        "the slower of two",
        "fast NICs",
        "slow NICs",
        "four nodes",
        "one with one GPU",
        "one GPU each",
        "one GPU each over NICs",
        "unknown machine",
        "one GPU of an unknown machine",
        "four H100 nodes",
        "four H100 nodes over fast NICs",
        "four H100 nodes over slow NICs",
        "one H100 node",
        "four L4 nodes",
        "four L4 nodes over NICs",
        "one L4 node",
        "one GPU each of unknown machines",
    ],
)
def test_bandwidth_over_nodes_is_the_slowest_link_by_the_factor_of_the_job(
    assignments, nic, bandwidth
):
    assert value(assignments, nic) == bandwidth


@pytest.mark.parametrize(
    ("assignments", "nic", "kind", "text"),
    [
        (
            [assignment(0, 3, 4), assignment(1)],
            None,
            LinkKind.OUT,
            "PCIe out of node-0, which has one of the job's GPUs",
        ),
        (
            [assignment(0, 1, 6, 7)] * 2,
            None,
            LinkKind.INSIDE,
            "inside node-0, between 4 of the job's GPUs",
        ),
        ([assignment(0, 3)] * 2, 5.0, LinkKind.NETWORK, "the NICs between the nodes"),
    ],
    ids=["out", "inside", "network"],
)
def test_slowest_link_of_a_job_is_named(assignments, nic, kind, text):
    slowest = bandwidth_over(assignments, nic).slowest

    assert (slowest.kind, slowest.text) == (kind, text)


def test_slowest_link_is_named_only_over_nodes():
    assert bandwidth_over([assignment(0, 3)], None).slowest is None


def test_other_gpu_models_are_named():
    v100, other = bandwidth_over([assignment(0, 3)], None), bandwidth_over([h100(0, 1)], None)

    assert v100.other_models(v100) == ""
    assert v100.models == ()  # the machine of the test has no name
    assert other.models == ("NVIDIA H100 80GB HBM3",)
    named = replace(v100, models=("V100",))
    assert other.other_models(named) == "on V100, this plan on NVIDIA H100 80GB HBM3"


SETS = st.lists(st.sampled_from(range(1, 256)), min_size=1, max_size=5)


@given(st.sampled_from(("dgx1-v100", "dgx-h100", "l4x8")), st.integers(1, 255))
def test_bandwidth_on_one_node_is_that_of_its_set(name, mask):
    found = assignment(*gpus_of(mask), machine=entry(name).machine)

    expected = found.bandwidth if mask.bit_count() > 1 else None
    assert value([found], None) == value([found], 1.0) == expected


@given(SETS, st.floats(0.1, 500), st.floats(0.1, 500))
def test_network_never_raises_bandwidth(masks, nic, faster):
    nodes = [h100(*gpus_of(mask)) for mask in masks]
    inside, slow = value(nodes, None), value(nodes, nic)

    assert inside is None or slow <= inside
    assert slow is None or slow <= value(nodes, nic + faster)


@given(SETS, st.integers(1, 255), st.sampled_from((None, 50.0)))
def test_another_node_never_raises_bandwidth(masks, mask, nic):
    nodes = [assignment(*gpus_of(each)) for each in masks]
    before = value(nodes, nic)

    assert before is None or value([*nodes, assignment(*gpus_of(mask))], nic) <= before


@given(st.lists(st.integers(1, 8), min_size=1, max_size=8))
def test_switched_nodes_have_the_bandwidth_of_the_links_out_of_the_smallest_part(sizes):
    k = sum(sizes)
    found = value([h100(*range(size)) for size in sizes], None)

    link = 370.8 if len(sizes) == 1 else min(370.8, 48.0 * min(sizes))
    assert found is None or found == pytest.approx(link * k / (2 * (k - 1)))
