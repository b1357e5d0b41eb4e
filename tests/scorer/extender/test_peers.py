"""Reported defects of the extenders of gpushare and HAMi, and their examples."""

import msgspec
import pytest
from support.builders import a_container, a_machine, a_node, a_pod, placed_pod

from linkwise.cluster import keys
from linkwise.cluster.allocations.gpus import GPUShare
from linkwise.cluster.objects.pod import Pod
from linkwise.planning.gang.pod_info import pod_info
from linkwise.planning.placement.filtering.reasons import Reason
from linkwise.planning.state.cluster_state import ClusterState
from scorer.extender.filter import Filter, request_of
from scorer.extender.gpu_choice import choose_gpus
from scorer.report.inspection import view_nodes


def pod(*limits, **fields):
    return msgspec.convert(a_pod(*limits, **fields), Pod)


def memory(*amounts, **fields):
    return pod(*({keys.GPU_MEM: amount} for amount in amounts), **fields)


def cluster(**nodes):
    """Return nodes with cards of these sizes; what is taken of each stands beside it."""
    state = ClusterState()
    for name, cards in nodes.items():
        sizes = tuple(size for size, _ in cards)
        node = a_node(name, a_machine(len(cards)), "share", card_memory=sizes)
        state.update_node(name, node)
        for i, (_, taken) in enumerate(cards):
            if taken:
                other = placed_pod(
                    f"{name}-{i}", {keys.GPU_MEM: taken}, name, GPUShare(i, mem=taken)
                )
                put(state, other)
    return state


def put(state, raw):
    raw["metadata"]["uid"] = raw["metadata"]["name"]
    found = pod_info(msgspec.convert(raw, Pod))
    state.update_pod(found.key, found)


def passing(state, asking):
    return Filter(state).run(asking, sorted(state.snapshot().ledger.nodes)).names


def cards(state, node, asking):
    """Return the cards that a pod gets of a node; none where it gets nothing."""
    ledger, request = state.ledger(node), request_of(asking)
    chosen = choose_gpus(ledger, state.table(node), request, state.preferences.mode)
    return [] if isinstance(chosen, Reason) else list(chosen.indices)


# ---- The examples of gpushare's own design.


def test_of_several_cards_with_room_the_fullest_is_taken():
    state = cluster(n=[(16, 4), (16, 8), (16, 12), (16, 0)])

    assert cards(state, "n", memory(8)) == [1]


def test_free_memory_counts_on_one_card_not_in_sum():
    state = cluster(
        n1=[(16, 16), (16, 12)],
        n2=[(16, 12), (16, 12)],
        n3=[(16, 8), (16, 16)],
    )

    assert passing(state, memory(8)) == ["n3"]


# ---- Defects.


def test_a_card_with_more_taken_than_it_has_does_not_look_empty():
    state = cluster(n=[(16, 16)])
    state.update_node("n", a_node("n", a_machine(1), "share", card_memory=8))

    assert passing(state, memory(1)) == []


def test_a_node_that_lost_a_card_gives_nothing_until_its_pods_are_gone():
    state = cluster(n=[(16, 0), (16, 4)])
    state.update_node("n", a_node("n", a_machine(1), "share", card_memory=16))
    assert passing(state, memory(1)) == []

    state.update_pod(("default", "n-1"), None)
    assert passing(state, memory(1)) == ["n"]


def test_a_node_that_lost_a_card_or_is_unknown_can_be_looked_at_all_the_same():
    state = cluster(n=[(16, 3), (16, 4)])
    state.update_node("n", a_node("n", a_machine(1), "share", card_memory=16))

    (node,) = view_nodes(state.snapshot(), 1).nodes
    assert [[holder.pod for holder in gpu.holders] for gpu in node.gpus] == [["default/n-0"]]
    assert "default/n-1: " in node.unaccounted
    assert view_nodes(state.snapshot(), 1, "gone").nodes == ()


def test_a_node_that_offers_no_gpus_any_more_is_shown_while_pods_hold_some():
    state = cluster(n=[(16, 3)])
    state.update_node("n", a_node("n", machine=None))

    (node,) = view_nodes(state.snapshot(), 1).nodes
    assert node.gpus == ()
    assert "default/n-0: " in node.unaccounted

    state.update_pod(("default", "n-0"), None)
    assert view_nodes(state.snapshot(), 1).nodes == ()


def test_cards_of_different_sizes_are_not_all_as_the_first():
    state = cluster(n=[(12, 0), (16, 0)])

    assert cards(state, "n", memory(14)) == [1]
    assert cards(state, "n", memory(16)) == [1]
    assert passing(state, memory(17)) == []


def test_init_containers_and_sidecars_count():
    init = [
        a_container({keys.GPU_MEM: 9}, name="prepare"),
        a_container({keys.GPU_MEM: 4}, name="proxy", restartPolicy="Always"),
    ]
    state = cluster(n=[(8, 0)], m=[(12, 0)])

    assert passing(state, memory(5, initContainers=init[:1])) == ["m"]
    assert passing(state, memory(5, initContainers=init[1:])) == ["m"]


def test_several_containers_of_a_pod_share_its_cards():
    state = cluster(n=[(8, 0), (8, 0)], m=[(12, 0)])

    assert passing(state, memory(5, 5)) == ["m"]
    assert cards(state, "m", memory(5, 5)) == [0]
    two = memory(5, 5, labels={keys.GPU_COUNT: "2"})
    assert cards(state, "n", two) == [0, 1]


@pytest.mark.parametrize("core", [-5, 101, 103, 7, "1.5"])
def test_compute_beyond_a_card_or_between_its_steps_is_refused_not_cut(core):
    state = ClusterState()
    state.update_node("n", a_node("n", a_machine(1), "core_mem", card_memory=16))
    asking = pod({keys.GPU_MEM: 1, keys.GPU_CORE: core})

    assert Filter(state).run(asking, ["n"]).unresolvable == {"n": Reason.REQUEST}


@pytest.mark.parametrize("amount", ["-1", "1.5", "x", "99999999999999999999"])
def test_memory_that_is_no_amount_is_refused_not_taken_for_none(amount):
    state = cluster(n=[(16, 0)])

    assert Filter(state).run(memory(amount), ["n"]).unresolvable == {"n": Reason.REQUEST}


def test_memory_of_0_asks_for_nothing_and_fits_where_no_card_is_free():
    assert passing(cluster(n=[(16, 16)]), memory("0")) == ["n"]


def test_unknown_node_gets_a_response():
    assert Filter(ClusterState()).run(memory(1), ["n"]).unresolvable == {"n": Reason.UNKNOWN}


def test_a_filter_returns_every_node_that_fits_and_keeps_none_of_them():
    state = cluster(n=[(16, 0)], m=[(16, 0)])

    assert passing(state, memory(16)) == passing(state, memory(16)) == ["m", "n"]


def test_unresolvable_nodes_need_no_eviction():
    state = cluster(n=[(16, 10)], m=[(8, 8)])

    found = Filter(state).run(memory(12), ("n", "m"))

    assert found.resolvable == {"n": Reason.MEMORY_SHARE}
    assert found.unresolvable == {"m": Reason.MEMORY_SHARE}


def test_a_pod_that_is_gone_blocks_nothing():
    state = cluster(n=[(16, 16)])
    state.update_pod(("default", "n-0"), None)

    assert passing(state, memory(16)) == ["n"]


def test_a_cordoned_card_and_a_broken_one_are_left_out_and_no_other():
    state = ClusterState()
    node = a_node("n", a_machine(4), "share", card_memory=16, unhealthy=(2,), cordoned=(0,))
    state.update_node("n", node)

    assert cards(state, "n", memory(32, labels={keys.GPU_COUNT: "2"})) == [1, 3]
    assert cards(state, "n", memory(48, labels={keys.GPU_COUNT: "3"})) == []


def test_index_from_another_writer_allocates_nothing():
    state = cluster(n=[(16, 0)])
    raw = a_pod({keys.GPU_MEM: 4}, nodeName="n", annotations={keys.MEM_IDX: "7"})
    put(state, raw)

    assert Filter(state).run(memory(1), ["n"]).unresolvable == {"n": Reason.UNACCOUNTED}
