from dataclasses import replace

import msgspec
import pytest
from builders import a_machine, a_node, a_pod, a_snapshot
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster import keys
from cluster.ledger import Holding
from cluster.pod import Pod
from cluster.record import Allocation, GPUShare
from cluster.request import read_request
from scorer.extender.answers import Answers
from scorer.extender.fit import rank, sift
from scorer.rank import rank_nodes
from scorer.reason import Reason

GANG = {keys.GANG: "bert", keys.GANG_SIZE: "2"}


def pod(*limits, uid="u", **fields):
    raw = a_pod(*limits, **fields)
    raw["metadata"]["uid"] = uid
    return msgspec.convert(raw, Pod)


def share(memory, core=None, **fields):
    amounts = {keys.GPU_MEM: memory} | ({keys.GPU_CORE: core} if core else {})
    return pod(amounts, **fields)


def sharing(name="a", cards=2, memory=16, mode="core_mem", **fields):
    return a_node(name, a_machine(cards), mode, card_memory=memory, **fields)


def sifted(snapshot, asking, *names, held=None):
    return sift(Answers(), snapshot, asking, held, names or tuple(snapshot.ledger.nodes))


def why(snapshot, asking, name="a"):
    """Return the reason against a node, and whether an eviction may help; None where it passes."""
    found = sifted(snapshot, asking, name)
    if name in found.names:
        assert not found.curable
        assert not found.incurable
        return None
    assert len(found.curable) + len(found.incurable) == 1
    return found.curable.get(name) or found.incurable[name], name in found.curable


def unaccounted(node):
    snapshot = a_snapshot(node)
    ledger = replace(snapshot.ledger.nodes[node.name], unaccounted="somebody")
    return replace(snapshot, ledger=replace(snapshot.ledger, nodes={node.name: ledger}))


WHOLE = {keys.GPU_WHOLE: 2}
WHOLES = a_node("a")
SLICED = a_node("a", a_machine(2), "timeslice")
FULL = [GPUShare(0, mem=8), GPUShare(1, mem=8)]
BUSY = [GPUShare(0, mem=1, core=50), GPUShare(1, mem=1, core=50)]
BROKEN = {"unhealthy": (0, 1, 2, 3), "cordoned": (4, 5, 6)}
CASES = {
    "GPUs": (pod(WHOLE), a_snapshot(WHOLES), None),
    "the last": (pod(WHOLE), a_snapshot(WHOLES, taken={"a": range(6)}), None),
    "one left": (pod(WHOLE), a_snapshot(WHOLES, taken={"a": range(7)}), (Reason.GPUS, True)),
    "more than there are": (pod({keys.GPU_WHOLE: 9}), a_snapshot(WHOLES), (Reason.GPUS, False)),
    "broken": (pod(WHOLE), a_snapshot(a_node("a", **BROKEN)), (Reason.GPUS, False)),
    "mig": (pod(WHOLE), a_snapshot(a_node("a", mode="mig")), (Reason.MODE, False)),
    "GPUs of shares": (pod(WHOLE), a_snapshot(sharing()), (Reason.MODE, False)),
    "unaccounted": (pod(WHOLE), unaccounted(WHOLES), (Reason.UNACCOUNTED, False)),
    "a card": (share(16), a_snapshot(sharing()), None),
    "more than a card": (share(17), a_snapshot(sharing()), (Reason.MEMORY_SHARE, False)),
    "in pieces": (share(9), a_snapshot(sharing(), shares={"a": FULL}), (Reason.MEMORY_SHARE, True)),
    "busy": (share(4, 60), a_snapshot(sharing(), shares={"a": BUSY}), (Reason.MEMORY_SHARE, True)),
    "compute beside memory alone": (
        share(1, 5),
        a_snapshot(sharing(), shares={"a": FULL}),
        (Reason.MEMORY_ONLY, True),
    ),
    "memory alone beside compute": (
        share(1),
        a_snapshot(sharing(), shares={"a": BUSY}),
        (Reason.COMPUTE_TOO, True),
    ),
    "no compute": (share(1, 5), a_snapshot(sharing(mode="share")), (Reason.MODE, False)),
    "memory alone": (share(1), a_snapshot(sharing(mode="share")), None),
    "two cards": (share(8, labels={keys.GPU_COUNT: "2"}), a_snapshot(sharing()), None),
    "four cards": (
        share(8, labels={keys.GPU_COUNT: "4"}),
        a_snapshot(sharing()),
        (Reason.MEMORY_SHARE, False),
    ),
    "replicas": (pod({keys.NVIDIA_GPU_SHARED: 8}), a_snapshot(SLICED), None),
    "more replicas": (
        pod({keys.NVIDIA_GPU_SHARED: 9}),
        a_snapshot(SLICED),
        (Reason.REPLICAS, False),
    ),
    "no such node": (share(1), a_snapshot(), (Reason.UNKNOWN, False)),
    "7 %": (share(5, 7), a_snapshot(sharing()), (Reason.REQUEST, False)),
    "two kinds": (
        pod(WHOLE, {keys.GPU_MEM: 1}),
        a_snapshot(WHOLES),
        (Reason.REQUEST, False),
    ),
    "a gang's, loose": (pod(WHOLE, annotations=GANG), a_snapshot(WHOLES), (Reason.GATE, False)),
}


@pytest.mark.parametrize(("asking", "snapshot", "expected"), CASES.values(), ids=CASES)
def test_a_node_passes_or_fails_for_a_reason_that_an_eviction_cures_or_not(
    asking, snapshot, expected
):
    assert why(snapshot, asking) == expected


@pytest.mark.parametrize(
    "asking", [pod({"cpu": 1}), pod({keys.NVIDIA_GPU: 1}), pod({}, annotations=GANG)], ids=repr
)
def test_a_pod_that_asks_for_nothing_that_is_placed_here_passes_everywhere_and_equally(asking):
    snapshot = a_snapshot(a_node("a", mode="mig"), sharing("b"))
    names = ("b", "unheard-of", "a")

    assert sifted(snapshot, asking, *names).names == names
    assert rank(Answers(), snapshot, asking, None, names) == [0, 0, 0]


def test_a_pod_that_has_its_gpus_passes_where_they_are():
    given = Allocation("b", (GPUShare(0), GPUShare(1)))
    nodes = [a_node(name) for name in "abc"]
    snapshot = a_snapshot(*nodes)
    held = snapshot.hold_all([("b", Holding("default/pod", "u", given.gpus))])

    found = sifted(held, pod(WHOLE, annotations=GANG), held=given)

    assert (found.names, found.curable) == (["b"], {})
    assert found.incurable == {"a": Reason.ELSEWHERE, "c": Reason.ELSEWHERE}
    assert rank(Answers(), held, pod(WHOLE), given, "abc") == [0, 10, 0]
    assert sifted(held, pod(WHOLE), "a", held=given).names == []


def test_a_pod_whose_gpus_are_not_its_own_any_more_passes_nowhere():
    given = Allocation("a", (GPUShare(0), GPUShare(1)))
    snapshot = a_snapshot(a_node("a"), taken={"a": (0,)})

    found = sifted(snapshot, pod(WHOLE), "a", "b", held=given)

    assert (found.names, found.curable) == ((), {})
    assert found.incurable == dict.fromkeys("ab", Reason.LOST)


@settings(max_examples=60)
@given(
    free=st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 8)),
    gpus=st.integers(1, 8),
    names=st.lists(st.sampled_from("abcdefg"), unique=True),
)
def test_who_passes_is_asked_about_and_ranks_as_whoever_asks_for_the_first_time(free, gpus, names):
    snapshot = a_snapshot(
        *(a_node(name) for name in free),
        taken={name: range(8 - count) for name, count in free.items() if count < 8},
    )
    known, asking = Answers(), pod({keys.GPU_WHOLE: gpus})

    for _ in range(2):
        found = sift(known, snapshot, asking, None, names)
        ranked = rank(known, snapshot, asking, None, names)

        assert found.names == [name for name in names if free.get(name, 0) >= gpus]
        assert sorted([*found.names, *found.curable, *found.incurable]) == sorted(names)
        scores = rank_nodes(snapshot, names, read_request(asking)[0])
        assert ranked == [scores[name] for name in names]


def test_what_an_earlier_snapshot_taught_is_not_asked_again():
    known, asking = Answers(), share(9)
    before = a_snapshot(sharing())
    after = a_snapshot(sharing(), shares={"a": [GPUShare(0, mem=8), GPUShare(1, mem=8)]})

    assert sift(known, before, asking, None, ["a"]).names == ["a"]
    assert sift(known, after, asking, None, ["a"]).names == ["a"]
    known.forget(["a"])
    assert sift(known, after, asking, None, ["a"]).curable == {"a": Reason.MEMORY_SHARE}


@pytest.mark.parametrize(
    "asking",
    [
        pytest.param(share(10), id="memory"),
        pytest.param(pod({keys.GPU_WHOLE: 2}), id="whole"),
    ],
)
def test_nothing_is_changed_by_being_asked(asking):
    snapshot = a_snapshot(sharing("a"), a_node("b"))
    before = {name: node.taken for name, node in snapshot.ledger.nodes.items()}

    for _ in range(3):
        sifted(snapshot, asking)
        rank(Answers(), snapshot, asking, None, ("a", "b"))

    assert {name: node.taken for name, node in snapshot.ledger.nodes.items()} == before
