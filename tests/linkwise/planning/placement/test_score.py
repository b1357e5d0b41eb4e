from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.builders import a_machine, a_member, a_node, a_pcie_machine, a_snapshot
from support.strategies import clusters

from linkwise.cluster.allocations.gpus import GPUShare
from linkwise.cluster.keys import GPU_CORE, GPU_MEM, NVIDIA_GPU
from linkwise.cluster.mode import PackingStrategy
from linkwise.planning.placement.assignment.node_assignment import SelectionOptions, select_gpus
from linkwise.planning.placement.assignment.single_node import best_node
from linkwise.planning.placement.score import node_value, scores


def rank_nodes(snapshot, names, request_):
    nodes, tables = snapshot.ledger.nodes, snapshot.tables
    mode, strategy = snapshot.preferences.mode, snapshot.preferences.placement
    values = [
        node_value(nodes[name], tables.get(name), request_, mode, strategy)
        if name in nodes
        else None
        for name in names
    ]
    return dict(zip(names, scores(values, strategy), strict=True))


whole = st.integers(1, 8).map(lambda gpus: a_member(gpus).request)


@settings(max_examples=80)
@given(clusters(), whole)
def test_scores_are_whole_numbers_from_0_to_10_and_the_best_node_has_10(snapshot, request_):
    options = SelectionOptions(snapshot.preferences.mode)
    able = [node for node in snapshot.nodes if node.free_mask.bit_count() >= request_.gpus]
    best = best_node(snapshot, able, (request_.gpus,), options)

    scores = rank_nodes(snapshot, snapshot.ledger.nodes, request_)

    assert scores.keys() == snapshot.ledger.nodes.keys()
    assert all(type(score) is int and 0 <= score <= 10 for score in scores.values())
    if best is None:
        assert set(scores.values()) == {0}
    else:
        assert scores[best.name] == 10
        assignments = {
            name: select_gpus(snapshot.tables[name], node.free_mask, (request_.gpus,), options)
            for node in able
            if (name := node.node.name)
        }
        sign = 1 if snapshot.preferences.placement is PackingStrategy.BINPACK else -1
        goodness = {
            name: (assignment.bandwidth < best.bandwidth * 0.99, sign * assignment.free_after)
            for name, assignment in assignments.items()
        }
        for one in assignments:
            assert one not in goodness or scores[one] <= 10
            for other in assignments:
                fast = not (goodness[one][0] or goodness[other][0])
                if fast and goodness[one] < goodness[other]:
                    assert scores[one] >= scores[other]


@settings(max_examples=40)
@given(clusters(), whole)
def test_nodes_alike_score_alike(snapshot, request_):
    twins = {f"{name}-twin": node for name, node in snapshot.ledger.nodes.items()}
    nodes = {**snapshot.ledger.nodes, **twins}
    tables = {**snapshot.tables, **{f"{n}-twin": t for n, t in snapshot.tables.items()}}
    double = replace(snapshot, ledger=replace(snapshot.ledger, nodes=nodes), tables=tables)

    scores = rank_nodes(double, nodes, request_)

    assert all(scores[name] == scores[f"{name}-twin"] for name in snapshot.ledger.nodes)


def test_slower_nodes_score_by_their_share_of_the_best():
    nodes = [
        a_node("best"),
        a_node("half"),
        a_node("host", a_pcie_machine(8, socket=4)),
    ]
    snapshot = a_snapshot(*nodes, taken={"half": (0, 2, 4, 6, 7)})

    assert rank_nodes(snapshot, ("best", "half", "host"), a_member(2).request) == {
        "best": 8,
        "half": 10,
        "host": 2,
    }


@pytest.mark.parametrize(
    ("placement", "scores"),
    [(PackingStrategy.BINPACK, [8, 9, 10]), (PackingStrategy.SPREAD, [10, 9, 8])],
    ids=str,
)
def test_equally_fast_nodes_score_by_what_they_leave(placement, scores):
    snapshot = a_snapshot(
        *(a_node(name) for name in "abc"),
        taken={"b": (4, 5), "c": (4, 5, 6, 7)},
        placement=placement,
    )

    ranked = rank_nodes(snapshot, "abc", a_member(4).request)

    assert list(ranked.values()) == scores


def test_only_the_best_of_many_node_classes_scores_10():
    taken = {f"n{i}": tuple(range(4, 4 + i)) for i in range(5)}
    snapshot = a_snapshot(*(a_node(name) for name in taken), taken=taken)

    assert rank_nodes(snapshot, taken, a_member(4).request) == {
        "n4": 10,
        "n3": 9,
        "n2": 9,
        "n1": 8,
        "n0": 8,
    }


def test_infeasible_and_unknown_nodes_score_0():
    nodes = [
        a_node("full"),
        a_node("none", None, "default"),
        a_node("share", mode="share", card_memory=8),
    ]
    snapshot = a_snapshot(*nodes, taken={"full": range(8)})
    names = ("full", "none", "share", "unknown")

    assert rank_nodes(snapshot, names, a_member(1).request)["full"] == 0
    assert rank_nodes(snapshot, names, a_member(0, limits={GPU_MEM: 9}).request) == (
        dict.fromkeys(names, 0)
    )
    assert rank_nodes(snapshot, names, a_member(9).request) == dict.fromkeys(names, 0)


def test_shares_rank_by_best_fit_and_as_compute_allows():
    nodes = [a_node(n, a_machine(2), "core_mem", card_memory=16) for n in "abcd"]
    shares = {
        "b": [GPUShare(0, mem=4, core=10)],
        "c": [GPUShare(0, mem=8, core=10)],
        "d": [GPUShare(0, mem=1)],
    }
    snapshot = a_snapshot(*nodes, shares=shares)
    request = a_member(0, limits={GPU_MEM: 4, GPU_CORE: 20}).request

    assert rank_nodes(snapshot, "abcd", request) == {"a": 0, "b": 5, "c": 10, "d": 0}


@pytest.mark.parametrize(
    ("placement", "scores"),
    [
        (PackingStrategy.BINPACK, {"a": 0, "b": 10, "c": 0}),
        (PackingStrategy.SPREAD, {"a": 10, "b": 0, "c": 0}),
    ],
    ids=str,
)
def test_counted_gpus_rank_by_how_many_are_left(placement, scores):
    nodes = [
        a_node(n, mode="default", resources={NVIDIA_GPU: free})
        for n, free in zip("abc", (8, 4, 1), strict=True)
    ]
    snapshot = a_snapshot(*nodes, placement=placement)

    assert rank_nodes(snapshot, "abc", a_member(0, limits={NVIDIA_GPU: 2}).request) == scores
