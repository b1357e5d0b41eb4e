import pytest

from linkwise.planning.gang.crd_plan import GangPlan, PlannedPod
from linkwise.planning.gang.events import (
    evicted,
    partial,
    placed,
    pod_waiting,
    unaccounted,
    waiting,
)


def a_plan(*nodes, **given):
    members = tuple(PlannedPod(f"p{i}", f"u{i}", node, (i,)) for i, node in enumerate(nodes))
    return GangPlan("p1", True, members, **given)


BANDWIDTHS = {
    "bandwidth": 55.2,
    "best_possible": 55.2,
    "best_possible_nodes": 1,
    "index_order": 46,
}


@pytest.mark.parametrize(
    ("message", "reason", "text"),
    [
        pytest.param(
            waiting("bert", "needs 64 GPUs as 64 × 1 GPU; 16 of 64 workers fit now"),
            "GangWaiting",
            "Gang bert waits: needs 64 GPUs as 64 × 1 GPU; 16 of 64 workers fit now",
            id="waiting",
        ),
        pytest.param(
            placed("bert", a_plan("a", "a", index_order_nodes=1, **BANDWIDTHS)),
            "GangPlaced",
            "All 2 members of gang bert are on a: 55.2 GB/s of 55.2 possible, 46 in index order",
            id="placed",
        ),
        pytest.param(
            placed("bert", a_plan("a", "a", index_order_nodes=3, **BANDWIDTHS)),
            "GangPlaced",
            "All 2 members of gang bert are on a: 55.2 GB/s of 55.2 possible; index order spans"
            " 3 nodes and is not comparable",
            id="placed, where index order takes more nodes",
        ),
        pytest.param(
            placed("bert", a_plan("a", "a", bandwidth=3.4, index_order=5.7)),
            "GangPlaced",
            "All 2 members of gang bert are on a: 3.4 GB/s",
            id="placed, with index order on an unknown number of nodes",
        ),
        pytest.param(
            placed(
                "bert",
                a_plan("a", "b", bandwidth_note="nic unknown", index_order_nodes=2, **BANDWIDTHS),
            ),
            "GangPlaced",
            "All 2 members of gang bert are on a, b: 55.2 GB/s, NICs not counted; the best possible"
            " spans 1 node and is not comparable, 46 in index order",
            id="placed on two nodes",
        ),
        pytest.param(
            placed("bert", a_plan("a")),
            "GangPlaced",
            "The only member of gang bert is on a",
            id="placed, without a bandwidth",
        ),
        pytest.param(
            placed("bert", a_plan("a", "a", bandwidth_note="GPUs unknown")),
            "GangPlaced",
            "All 2 members of gang bert are on a; bandwidth not known: NVIDIA's plugin chooses the"
            " GPUs",
            id="placed, where NVIDIA's plugin chooses",
        ),
        pytest.param(
            placed("bert", a_plan(*"abcd", bandwidth=4), is_uniform=False),
            "GangPlaced",
            "All 4 members of gang bert are on 4 nodes: 4 GB/s; they do not all ask for the same",
            id="placed on many nodes",
        ),
        pytest.param(
            evicted("bert", 2, 0, "bert-worker-1 could not be bound to a in 60 s"),
            "GangEvicted",
            "All 2 members of gang bert were evicted, to be placed again together: "
            "bert-worker-1 could not be bound to a in 60 s",
            id="evicted",
        ),
        pytest.param(
            evicted("bert", 1, 3, "bert-worker-1 could not be bound to a in 60 s"),
            "GangEvicted",
            "1 of 4 members of gang bert was evicted, to be placed again together: "
            "bert-worker-1 could not be bound to a in 60 s",
            id="replacement evicted",
        ),
        pytest.param(
            unaccounted("gpu-0"),
            "NodeUnaccounted",
            "No pod gets GPUs here until it is known which ones are in use: "
            "`linkwise inspect gpu-0` states the reason",
            id="unaccounted",
        ),
        pytest.param(
            partial("bert", 1, None, "quota"),
            "GangPartial",
            "1 of ? members of gang bert have their GPUs, the others do not: quota",
            id="partial",
        ),
        pytest.param(
            pod_waiting("too big"),
            "WaitingForGPUs",
            "Waits for its GPUs: too big",
            id="pod without a gang",
        ),
    ],
)
def test_an_event_message_is_one_sentence(message, reason, text):
    assert (message.reason, message.text) == (reason, text)


def test_a_gang_name_is_printed_without_control_characters():
    assert waiting("a\x1b[2Jb", "x").text == "Gang a?[2Jb waits: x"
