import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import a_machine, a_member, a_node, a_snapshot, workers

from linkwise.cluster.allocations.gpus import GPUShare
from linkwise.cluster.gang import Link
from linkwise.cluster.keys import GPU_MEM, NVIDIA_GPU
from linkwise.cluster.mode import PackingStrategy
from linkwise.planning.placement.filtering.shares import has_enough
from linkwise.planning.placement.options import PlanOptions
from linkwise.planning.placement.pod_by_pod import place_each, place_together
from linkwise.planning.placement.pods.group import new_group
from linkwise.planning.placement.result import Plan, Refusal
from linkwise.planning.placement.state.node_cache import DeadlineExceeded


def a_share(name: str, memory: int):
    return a_member(0, name, limits={GPU_MEM: memory})


def test_members_keep_their_order_although_the_largest_is_placed_first():
    # Best fit for the small one first would take the only card with room for the large one.
    node = a_node(machine=a_machine(2), mode="share", card_memory=(16, 24))
    shares = {"node-0": [GPUShare(0, mem=2), GPUShare(1, mem=12)]}
    members = [a_share("small", 12), a_share("large", 14)]

    found = place_each(a_snapshot(node, shares=shares), new_group(members))

    assert found.placements[0].member.name == "default/small" if isinstance(found, Plan) else False
    assert [p.gpus.indices for p in found.placements] == [(1,), (0,)]


def test_unequal_members_stay_on_the_nodes_in_use_where_they_fit():
    nodes = [a_node("a"), a_node("b")]
    members = [a_member(1, "w0"), a_member(6, "w1"), a_member(3, "w2"), a_member(1, "w3")]

    found = place_each(a_snapshot(*nodes), new_group(members))

    assert [p.node for p in found.placements] == ["a", "a", "b", "a"]
    assert found.one_by_one
    assert found.nodes_considered == 2


def test_unequal_members_stay_together_where_nodes_are_spread_too():
    snapshot = a_snapshot(*(a_node(name) for name in "abc"), placement=PackingStrategy.SPREAD)
    members = [a_member(6, "w0"), a_member(7, "w1"), a_member(1, "w2")]

    found = place_each(snapshot, new_group(members))

    assert [p.node for p in found.placements] == ["b", "a", "b"]


def test_nodes_without_a_linked_set_are_counted_once():
    nodes = [a_node("a", a_machine(4)), a_node("b", a_machine(4)), a_node("c", None, "default")]
    members = [a_member(2, "w0"), a_member(3, "w1")]

    found = place_each(a_snapshot(*nodes), new_group(members, PlanOptions(Link.NVLINK)))

    assert found == Refusal(
        "needs 3 GPUs on one node; 0 of 2 members would fit; of 3 nodes: "
        "no free set connected by NVLink alone (2), requested GPU resource not offered (1)"
    )


def test_together_takes_the_next_node_where_the_best_has_no_room_for_all():
    nodes = [a_node(n, a_machine(2), "share", card_memory=16) for n in "ab"]
    shares = {"a": [GPUShare(0, mem=8)]}

    found = place_together(
        a_snapshot(*nodes, shares=shares), new_group([a_share(n, 9) for n in "xy"])
    )

    assert found.gpus == {"b": (0, 1)}


def test_together_says_why_not_even_the_first_fits():
    found = place_together(a_snapshot(), new_group(workers(2, 0, limits={NVIDIA_GPU: 1})))

    assert found == Refusal("needs 1 GPU on one node; 0 of 2 members would fit; there are no nodes")


@given(
    sizes=st.lists(st.integers(1, 16), min_size=1, max_size=3),
    taken=st.integers(0, 16),
    asked=st.lists(st.integers(1, 8), min_size=1, max_size=6),
)
def test_members_that_fit_a_node_together_are_placed_there(sizes, taken, asked):
    node = a_node(machine=a_machine(len(sizes)), mode="share", card_memory=tuple(sizes))
    share = GPUShare(0, mem=min(taken, sizes[0])) if taken else None
    snapshot = a_snapshot(node, shares={"node-0": [share]} if share else {})
    group = new_group([a_share(f"w{i}", memory) for i, memory in enumerate(asked)])

    if isinstance(place_each(snapshot, group), Plan):
        requests = [member.request for member in group.members]
        assert has_enough(snapshot.nodes[0], requests)
        assert isinstance(place_together(snapshot, group), Plan)


def test_nodes_that_are_too_small_for_all_are_not_tried_one_by_one():
    nodes = [a_node(f"n{i}", a_machine(2), "share", card_memory=16) for i in range(50)]
    looks = iter(range(250))
    snapshot = a_snapshot(*nodes).fork(lambda: next(looks, None) is None)

    found = place_together(snapshot, new_group([a_share(f"w{i}", 8) for i in range(5)]))

    reason = "5 members that need 8 GiB of one card, all on one node: no node takes all of them"
    assert found == Refusal(reason)


def test_nodes_that_must_be_tried_are_tried_until_the_deadline():
    nodes = [a_node(f"n{i}", a_machine(2), "share", card_memory=16) for i in range(50)]
    looks = iter(range(250))
    snapshot = a_snapshot(*nodes).fork(lambda: next(looks, None) is None)

    with pytest.raises(DeadlineExceeded):
        place_together(snapshot, new_group([a_share(f"w{i}", 9) for i in range(3)]))
