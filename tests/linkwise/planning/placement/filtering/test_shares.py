from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.builders import a_machine, a_member, a_node, a_snapshot

from linkwise.cluster.account.node_ledger import NodeLedger
from linkwise.cluster.allocations.gpus import Exact, GPUShare
from linkwise.cluster.keys import GPU_CORE, GPU_COUNT, GPU_MEM, NVIDIA_GPU, NVIDIA_GPU_SHARED
from linkwise.cluster.mode import PackingStrategy
from linkwise.cluster.requests.request import Request
from linkwise.planning.placement.filtering.shares import cards_for, has_enough
from linkwise.planning.placement.result import Plan
from linkwise.planning.placement.schedule import plan


def a_share(memory: int, core: int = 0, cards: int = 1) -> Request:
    limits = {GPU_MEM: memory, **({GPU_CORE: core} if core else {})}
    labels = {GPU_COUNT: str(cards)} if cards > 1 else {}
    return a_member(0, limits=limits, labels=labels).request


def replicas(number: int) -> Request:
    return a_member(0, limits={NVIDIA_GPU_SHARED: number}).request


def a_share_node(
    sizes: Sequence[int],
    *shares: GPUShare,
    mode: str = "share",
    placement: str = "binpack",
    **fields: Any,
) -> NodeLedger:
    node = a_node(
        machine=a_machine(len(sizes)),
        mode=mode,
        card_memory=tuple(sizes),
        placement=PackingStrategy(placement),
        **fields,
    )
    return a_snapshot(node, shares={"node-0": shares}).nodes[0]


def chosen(node: NodeLedger, request: Request) -> list[int]:
    return [share.i for share in cards_for(node, request)]


def test_best_fit_takes_the_card_with_the_least_room_that_is_enough():
    # The example of gpushare's design, there in MiB: of these four, the second is taken.
    free = (12207, 8138, 4069, 16276)
    node = a_share_node(
        (16276,) * 4,
        *(GPUShare(i, mem=16276 - left) for i, left in enumerate(free) if left < 16276),
    )

    assert chosen(node, a_share(4000)) == [2]
    assert cards_for(node, Request(a_share(1).family, 1, 8138)) == (GPUShare(1, mem=8138),)
    assert chosen(node, Request(a_share(1).family, 1, 16277)) == []


@pytest.mark.parametrize(
    ("placement", "first"), [("binpack", [1]), ("spread", [3])], ids=["binpack", "spread"]
)
def test_cards_are_chosen_by_free_memory(placement, first):
    node = a_share_node((24, 8, 12, 48), placement=placement)

    assert chosen(node, a_share(6)) == first


@pytest.mark.parametrize(("placement", "first"), [("binpack", [2]), ("spread", [0])])
def test_ties_in_memory_are_broken_by_compute_then_by_index(placement, first):
    node = a_share_node(
        (16, 16, 16, 16),
        GPUShare(0, mem=4, core=10),
        GPUShare(1, mem=4, core=10),
        GPUShare(2, mem=4, core=60),
        GPUShare(3, mem=4, core=60),
        mode="core_mem",
        placement=placement,
    )

    assert chosen(node, a_share(2, 20)) == first


def test_a_card_needs_room_for_memory_and_for_compute():
    node = a_share_node((16, 16), GPUShare(0, mem=10, core=80), mode="core_mem")

    assert chosen(node, a_share(4, 20)) == [0]
    assert chosen(node, a_share(4, 25)) == [1]


def test_a_share_over_several_cards_takes_an_equal_part_of_each():
    node = a_share_node((16, 8, 12, 8), mode="core_mem")

    assert cards_for(node, a_share(12, 40, cards=2)) == (
        GPUShare(1, mem=6, core=20),
        GPUShare(3, mem=6, core=20),
    )
    assert cards_for(node, a_share(40, 0, cards=4)) == ()


def test_unhealthy_and_cordoned_cards_take_no_share():
    node = a_share_node((8, 8, 8), unhealthy=(0,), cordoned=(1,))

    assert chosen(node, a_share(1)) == [2]


@settings(max_examples=60)
@given(
    st.lists(st.integers(4, 24), min_size=1, max_size=5),
    st.lists(
        st.tuples(st.integers(1, 12), st.sampled_from((0, 20, 40)), st.integers(1, 3)),
        min_size=1,
        max_size=8,
    ),
    st.sampled_from(("binpack", "spread")),
)
def test_pods_in_sequence_each_get_the_best_card_for_them(sizes, pods, placement):
    node = a_share_node(sizes, mode="core_mem", placement=placement)
    compute = bool(pods[0][1])
    sign = 1 if placement == "binpack" else -1
    for i, (memory, percent, cards) in enumerate(pods):
        core = (percent or 20) if compute else 0
        request = a_share(memory * cards, core * cards, cards)
        rooms = [(node.memory_free(g), node.core_free(g), g) for g in range(len(sizes))]
        rooms = [(m, c, g) for m, c, g in rooms if m >= memory and c >= core]
        expected = sorted(rooms, key=lambda card: (sign * card[0], sign * card[1], card[2]))

        shares = cards_for(node, request)

        if len(rooms) < cards:
            assert shares == ()
            continue
        assert [share.i for share in shares] == sorted(g for _, _, g in expected[:cards])
        assert {(share.mem, share.core) for share in shares} == {(memory, core or None)}
        member = a_member(0, f"p{i}", limits={GPU_MEM: memory})
        node = node.hold(member.holding(Exact(shares)))


def test_replicas_go_to_the_gpus_with_the_most_left_and_to_different_ones():
    node = a_snapshot(
        a_node(machine=a_machine(3), mode="timeslice"),
        shares={"node-0": [GPUShare(0), GPUShare(0), GPUShare(1)]},
    ).nodes[0]

    assert chosen(node, replicas(1)) == [2]
    assert chosen(node, replicas(2)) == [1, 2]
    assert chosen(node, replicas(4)) == [0, 1, 2, 2]
    assert chosen(node, replicas(9)) == [0, 0, 1, 1, 1, 2, 2, 2, 2]
    assert chosen(node, replicas(10)) == []


def test_two_replicas_go_to_two_gpus_though_one_has_more_left():
    used = [GPUShare(1), GPUShare(1), GPUShare(1)]
    node = a_snapshot(a_node(machine=a_machine(2), mode="timeslice"), shares={"node-0": used})

    assert chosen(node.nodes[0], replicas(2)) == [0, 1]


@given(
    asked=st.lists(st.integers(1, 5), min_size=1, max_size=10),
    cordoned=st.sets(st.integers(0, 3), max_size=3),
)
def test_replicas_are_spread_as_evenly_as_those_before_let_them(asked, cordoned):
    node = NodeLedger.empty(
        a_node(machine=a_machine(4), mode="timeslice", cordoned=tuple(cordoned))
    )
    for i, number in enumerate(asked):
        left = {gpu: node.replicas_free(gpu) for gpu in range(4) if node.replicas_free(gpu)}
        shares = cards_for(node, replicas(number))
        gpus = [share.i for share in shares]

        assert len(gpus) == (number if sum(left.values()) >= number else 0)
        if gpus:
            assert len(set(gpus)) == min(number, len(left))
            others = left.keys() - set(gpus)
            assert all(left[gpu] >= left[other] for gpu in gpus for other in others)
        node = node.hold(a_member(0, f"p{i}").holding(Exact(shares)))


# ---- Which node: by way of a plan of one pod after another.


def nodes_of(nodes: list[Any], shares: dict[str, list[GPUShare]], *asked: dict[str, int]) -> str:
    """Return the names of the nodes that pods go to, one after another; `-` for none."""
    snapshot, names = a_snapshot(*nodes, shares=shares), ""
    for i, limits in enumerate(asked):
        found = plan(snapshot, [a_member(0, f"p{i}", limits=limits)])
        names += found.placements[0].node if isinstance(found, Plan) else "-"
        snapshot = found.applied_to(snapshot) if isinstance(found, Plan) else snapshot
    return names


def two(placement: str = "binpack", mode: str = "share", **fields: Any) -> list[Any]:
    return [
        a_node(
            n, a_machine(2), mode, card_memory=16, placement=PackingStrategy(placement), **fields
        )
        for n in "ab"
    ]


def test_only_the_node_with_room_on_one_card_takes_a_share():
    # Gpushare's second example: 4, 4 + 4 and 8 GiB free, asked for 8.
    nodes = [a_node(n, a_machine(2), "share", card_memory=16) for n in "abc"]
    shares = {
        "a": [GPUShare(0, mem=12), GPUShare(1, mem=16)],
        "b": [GPUShare(0, mem=12), GPUShare(1, mem=12)],
        "c": [GPUShare(0, mem=8), GPUShare(1, mem=16)],
    }

    assert nodes_of(nodes, shares, {GPU_MEM: 8}) == "c"


def test_best_fit_prefers_a_node_in_use_to_a_tighter_card_of_an_empty_one():
    nodes = [
        a_node(n, a_machine(1), "share", card_memory=memory) for n, memory in (("a", 8), ("b", 16))
    ]

    assert nodes_of(nodes, {"b": [GPUShare(0, mem=2)]}, {GPU_MEM: 6}) == "b"
    assert nodes_of(nodes, {}, {GPU_MEM: 6}) == "a"


def test_best_fit_fills_the_node_in_use_then_the_tightest_card_then_the_first_name():
    assert nodes_of(two(), {"b": [GPUShare(0, mem=2)]}, {GPU_MEM: 10}) == "b"
    tight = {"a": [GPUShare(0, mem=2)], "b": [GPUShare(0, mem=4)]}
    assert nodes_of(two(), tight, {GPU_MEM: 10}) == "b"
    assert nodes_of(two(), {}, *[{GPU_MEM: 10}] * 5) == "aabb-"


def test_spread_takes_the_emptier_node_then_the_roomiest_card_then_the_first_name():
    assert nodes_of(two("spread"), {}, *[{GPU_MEM: 10}] * 5) == "abab-"
    roomy = {"a": [GPUShare(0, mem=4), GPUShare(1, mem=4)], "b": [GPUShare(0, mem=8)]}
    assert nodes_of(two("spread"), roomy, {GPU_MEM: 2}) == "b"


def test_memory_only_and_compute_pods_never_share_a_node():
    memory, compute = {GPU_MEM: 2}, {GPU_MEM: 2, GPU_CORE: 20}

    assert nodes_of(two(mode="core_mem"), {}, memory, compute, memory, compute) == "abab"
    assert nodes_of(two(mode="core_mem")[:1], {}, memory, compute) == "a-"
    assert nodes_of(two(mode="core_mem")[:1], {}, compute, memory) == "a-"
    assert nodes_of(two(mode="share"), {}, compute) == "-"


def test_four_cards_of_15_gib_take_four_pods_of_10_gib_and_30_percent():
    # 400 % and 60 GiB: by the sums a fifth would fit, by the cards it does not.
    node = a_node("n", a_machine(4), "core_mem", card_memory=15)
    asked = {GPU_MEM: 10, GPU_CORE: 30}

    assert nodes_of([node], {}, *[asked] * 5) == "nnnn-"
    assert nodes_of([node], {}, *[asked] * 4, *[{GPU_MEM: 5, GPU_CORE: 70}] * 5) == "nnnnnnnn-"


def test_replicas_go_where_the_most_are_left():
    nodes = [a_node(n, a_machine(2), "timeslice") for n in "ab"]

    assert nodes_of(nodes, {}, *[{NVIDIA_GPU_SHARED: 1}] * 4) == "aabb"
    assert nodes_of(nodes, {}, {NVIDIA_GPU_SHARED: 9}) == "-"


def counted(number: int) -> Request:
    return a_member(0, limits={NVIDIA_GPU: number}).request


@pytest.mark.parametrize(
    ("mode", "requests", "expected"),
    [
        pytest.param("share", [a_share(4)] * 8, True, id="all the memory"),
        pytest.param("share", [a_share(4)] * 8 + [a_share(1)], False, id="more memory"),
        pytest.param("share", [a_share(9)] * 3, True, id="enough that is cut otherwise"),
        pytest.param("core_mem", [a_share(1, 50)] * 4, True, id="all the compute"),
        pytest.param("core_mem", [a_share(1, 50)] * 5, False, id="more compute"),
        pytest.param("timeslice", [replicas(2)] * 4, True, id="all replicas"),
        pytest.param("timeslice", [replicas(2)] * 4 + [replicas(1)], False, id="more replicas"),
        pytest.param("default", [counted(1)] * 2, True, id="all counted"),
        pytest.param("default", [counted(1)] * 3, False, id="more than are counted"),
        pytest.param("share", [a_share(40), replicas(1)], True, id="of several kinds"),
    ],
)
def test_a_node_has_enough_for_all_or_it_takes_them_for_certain_not(mode, requests, expected):
    assert has_enough(a_share_node((16, 16), mode=mode), requests) is expected
