import pytest
from support.builders import a_member, a_node, a_snapshot

from linkwise.cluster.account.gpu_usage import LedgerError
from linkwise.cluster.allocations.gpus import Exact, GPUShare
from linkwise.planning.placement.bandwidth import Bandwidth
from linkwise.planning.placement.result import Placement, Plan


def placed(name: str, node: str, *gpus: int) -> Placement:
    return Placement(a_member(len(gpus), name), node, Exact(tuple(GPUShare(i) for i in gpus)))


def test_plan_lists_the_gpus_of_each_node_in_rank_order():
    plan = Plan((placed("w0", "b", 5, 3), placed("w1", "a", 0), placed("w2", "b", 1)))

    assert plan.placements[0].gpus.indices == (3, 5)
    assert list(plan.gpus.items()) == [("b", (1, 3, 5)), ("a", (0,))]


def test_a_plan_is_applied_to_a_snapshot_and_leaves_it_as_it_was():
    snapshot = a_snapshot(a_node("a"), a_node("b"))

    after = Plan((placed("w0", "a", 0), placed("w1", "b", 1))).applied_to(snapshot)

    assert [node.free_mask for node in after.nodes] == [0b11111110, 0b11111101]
    assert [node.free_mask for node in snapshot.nodes] == [0b11111111, 0b11111111]


def test_a_plan_that_no_longer_fits_is_not_applied():
    plan = Plan((placed("w0", "a", 0),))

    with pytest.raises(LedgerError):
        plan.applied_to(a_snapshot(a_node("a"), taken={"a": (0,)}))


@pytest.mark.parametrize(
    ("planned", "other", "comparable"),
    [
        pytest.param(Bandwidth(55.2, 1), Bandwidth(46, 1), True, id="one node each"),
        pytest.param(Bandwidth(5, 2, True), Bandwidth(4, 2, True), True, id="two nodes each"),
        pytest.param(Bandwidth(3.4, 1), Bandwidth(5.7, 4, True), False, id="one and four"),
        pytest.param(Bandwidth(5.7, 8, True), Bandwidth(9, 35, True), False, id="8 and 35"),
        pytest.param(Bandwidth(3.4, 1), Bandwidth(5.7, 4), True, id="NICs count"),
        pytest.param(Bandwidth(5, 2), Bandwidth(4, 3), True, id="NICs count in both"),
        pytest.param(Bandwidth(5, 2, True), Bandwidth(4, None, True), False, id="old plan"),
    ],
)
def test_bandwidths_are_comparable_over_equal_nodes_or_with_nics(planned, other, comparable):
    assert planned.is_comparable(other) is other.is_comparable(planned) is comparable
