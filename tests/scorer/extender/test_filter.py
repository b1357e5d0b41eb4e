import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.builders import TIMESLICED, a_machine, a_node, a_pod, placed_pod

from linkwise.cluster import keys
from linkwise.cluster.allocations.gpus import GPUShare
from linkwise.cluster.objects.pod import Pod
from linkwise.planning.gang.pod_info import pod_info
from linkwise.planning.placement.filtering.reasons import Reason
from linkwise.planning.state.cluster_state import ClusterState
from scorer.extender.filter import Filter

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


def a_state(*nodes, taken=None, shares=None, pods=()):
    """Return a cluster on which others have GPUs whole, and one share each, by node name."""
    state = ClusterState()
    for node in nodes:
        state.update_node(node.name, node)
    whole = {node: tuple(map(GPUShare, gpus)) for node, gpus in (taken or {}).items()}
    made = [
        placed_pod(f"whole-{node}", {keys.GPU_WHOLE: len(gpus)}, node, *gpus)
        for node, gpus in whole.items()
        if gpus
    ]
    for node, parts in (shares or {}).items():
        for i, part in enumerate(parts):
            amounts = {keys.GPU_MEM: part.mem} | ({keys.GPU_CORE: part.core} if part.core else {})
            made.append(placed_pod(f"share-{node}-{i}", amounts, node, part))
    for raw in [*made, *pods]:
        put(state, raw)
    return state


def put(state, raw):
    raw["metadata"].setdefault("uid", raw["metadata"]["name"])
    found = pod_info(msgspec.convert(raw, Pod))
    state.update_pod(found.key, found)


def verdict(state, asking, *names):
    return Filter(state).run(asking, names or tuple(state.snapshot().ledger.nodes))


def why(state, asking, name="a"):
    """Return the reason against a node, and whether an eviction may help; None where it passes."""
    found = verdict(state, asking, name)
    if name in found.names:
        assert not found.resolvable
        assert not found.unresolvable
        return None
    assert len(found.resolvable) + len(found.unresolvable) == 1
    return found.resolvable.get(name) or found.unresolvable[name], name in found.resolvable


WHOLE = {keys.GPU_WHOLE: 2}
WHOLES = a_node("a")
SLICED = a_node("a", a_machine(2), "timeslice")
FULL = [GPUShare(0, mem=8), GPUShare(1, mem=8)]
BUSY = [GPUShare(0, mem=1, core=50), GPUShare(1, mem=1, core=50)]
UNRECORDED = a_pod({keys.GPU_WHOLE: 1}, name="who", nodeName="a")
BROKEN = {"unhealthy": (0, 1, 2, 3), "cordoned": (4, 5, 6)}
CASES = {
    "GPUs": (pod(WHOLE), a_state(WHOLES), None),
    "the last": (pod(WHOLE), a_state(WHOLES, taken={"a": range(6)}), None),
    "one left": (pod(WHOLE), a_state(WHOLES, taken={"a": range(7)}), (Reason.GPUS, True)),
    "more than there are": (pod({keys.GPU_WHOLE: 9}), a_state(WHOLES), (Reason.GPUS, False)),
    "broken": (pod(WHOLE), a_state(a_node("a", **BROKEN)), (Reason.UNUSABLE, False)),
    "broken, and taken": (
        pod(WHOLE),
        a_state(a_node("a", cordoned=(0, 1)), taken={"a": range(2, 8)}),
        (Reason.UNUSABLE, True),
    ),
    "mig": (pod(WHOLE), a_state(a_node("a", mode="mig")), (Reason.MODE, False)),
    "GPUs of shares": (pod(WHOLE), a_state(sharing()), (Reason.MODE, False)),
    "mismatch": (
        pod(WHOLE),
        a_state(a_node("a", mismatch="process 7 uses GPU 3")),
        (Reason.UNACCOUNTED, False),
    ),
    "unaccounted": (
        pod(WHOLE),
        a_state(WHOLES, pods=[a_pod({keys.GPU_WHOLE: 1}, name="who", nodeName="a")]),
        (Reason.UNACCOUNTED, False),
    ),
    "a card": (share(16), a_state(sharing()), None),
    "more than a card": (share(17), a_state(sharing()), (Reason.MEMORY_SHARE, False)),
    "in pieces": (share(9), a_state(sharing(), shares={"a": FULL}), (Reason.MEMORY_SHARE, True)),
    "busy": (share(4, 60), a_state(sharing(), shares={"a": BUSY}), (Reason.MEMORY_SHARE, True)),
    "compute beside memory alone": (
        share(1, 5),
        a_state(sharing(), shares={"a": FULL}),
        (Reason.MEMORY_ONLY, True),
    ),
    "memory alone beside compute": (
        share(1),
        a_state(sharing(), shares={"a": BUSY}),
        (Reason.COMPUTE_TOO, True),
    ),
    "no compute": (share(1, 5), a_state(sharing(mode="share")), (Reason.MODE, False)),
    "memory alone": (share(1), a_state(sharing(mode="share")), None),
    "two cards": (share(8, labels={keys.GPU_COUNT: "2"}), a_state(sharing()), None),
    "four cards": (
        share(8, labels={keys.GPU_COUNT: "4"}),
        a_state(sharing()),
        (Reason.MEMORY_SHARE, False),
    ),
    "replicas": (pod({keys.NVIDIA_GPU_SHARED: 8}, **TIMESLICED), a_state(SLICED), None),
    "more replicas": (
        pod({keys.NVIDIA_GPU_SHARED: 9}, **TIMESLICED),
        a_state(SLICED),
        (Reason.REPLICAS, False),
    ),
    "no such node": (share(1), a_state(), (Reason.UNKNOWN, False)),
    "7 %": (share(5, 7), a_state(sharing()), (Reason.REQUEST, False)),
    "two kinds": (
        pod(WHOLE, {keys.GPU_MEM: 1}),
        a_state(WHOLES),
        (Reason.REQUEST, False),
    ),
    "a gang's, loose": (pod(WHOLE, annotations=GANG), a_state(WHOLES), (Reason.GATE, False)),
}


@pytest.mark.parametrize(("asking", "state", "expected"), CASES.values(), ids=CASES)
def test_a_node_is_feasible_or_has_a_reason_that_evictions_resolve_or_not(asking, state, expected):
    assert why(state, asking) == expected


@pytest.mark.parametrize(
    "asking", [pod({"cpu": 1}), pod({keys.NVIDIA_GPU: 1}), pod({}, annotations=GANG)], ids=repr
)
def test_a_pod_without_placed_resources_fits_everywhere_with_equal_scores(asking):
    state = a_state(a_node("a", mode="mig"), sharing("b"))
    names = ("b", "unheard-of", "a")

    assert verdict(state, asking, *names).names == names
    assert Filter(state).score(asking, names) == [0, 0, 0]


def recorded(node, *gpus, bound=False, **fields):
    shares = tuple(map(GPUShare, gpus))
    return placed_pod("pod", WHOLE, node, *shares, bound=bound, **fields)


@pytest.mark.parametrize("known", [True, False], ids=["from the cache", "from the pod"])
def test_a_pod_with_gpus_fits_on_their_node_only(known):
    state = a_state(*(a_node(name) for name in "abc"))
    raw = recorded("b", 0, 1, labels={keys.POD_GROUP_NAME: "g", keys.POD_GROUP_MIN_AVAILABLE: "2"})
    put(state, raw)
    asking = msgspec.convert(raw, Pod)
    if known:
        asking = msgspec.structs.replace(
            asking, metadata=msgspec.structs.replace(asking.metadata, annotations=None)
        )

    found = verdict(state, asking)

    assert (found.names, found.resolvable) == (["b"], {})
    assert found.unresolvable == {"a": Reason.ELSEWHERE, "c": Reason.ELSEWHERE}
    assert Filter(state).score(asking, "abc") == [0, 10, 0]
    assert verdict(state, asking, "a").names == []


@pytest.mark.parametrize("gpus", [(0, 1), None], ids=["taken by another", "unreadable"])
def test_a_pod_whose_gpus_are_allocated_to_others_fits_nowhere(gpus):
    state = a_state(a_node("a"), taken={"a": (0,)})
    raw = recorded("a", *(gpus or (0, 1)))
    if gpus is None:
        raw["metadata"]["annotations"][keys.ALLOCATION] = "{}"
    put(state, raw)

    found = verdict(state, msgspec.convert(raw, Pod), "a", "b")

    assert (found.names, found.resolvable) == ((), {})
    assert found.unresolvable == dict.fromkeys("ab", Reason.LOST)


@settings(max_examples=60)
@given(
    free=st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 8)),
    gpus=st.integers(1, 8),
    names=st.lists(st.sampled_from("abcdefg"), unique=True),
)
def test_cached_verdicts_equal_those_of_a_new_filter(free, gpus, names):
    state = a_state(
        *(a_node(name) for name in free),
        taken={name: range(8 - count) for name, count in free.items() if count < 8},
    )
    fit, asking = Filter(state), pod({keys.GPU_WHOLE: gpus})

    for _ in range(2):
        found, ranked = fit.run(asking, names), fit.score(asking, names)

        assert found.names == [name for name in names if free.get(name, 0) >= gpus]
        assert sorted([*found.names, *found.resolvable, *found.unresolvable]) == sorted(names)
        assert ranked == Filter(state).score(asking, names)


def test_changed_nodes_are_filtered_again():
    state = a_state(sharing())
    fit, asking, names = Filter(state), share(9), ("a", "b")
    assert (fit.run(asking, names).names, fit.score(asking, names)) == (["a"], [10, 0])

    for i in range(2):
        put(
            state,
            placed_pod(f"p{i}", {keys.GPU_MEM: 8, keys.GPU_CORE: 5}, "a", GPUShare(i, None, 8, 5)),
        )
    state.update_node("b", sharing("b"))
    assert (fit.run(asking, names).names, fit.score(asking, names)) == (["b"], [0, 10])

    state.update_pod(("default", "p0"), None)
    state.update_node("b", None)
    assert fit.run(share(9, 5), names).names == ["a"]
    assert fit.run(asking, names).unresolvable == {"b": Reason.UNKNOWN}


def test_a_node_that_grows_or_changes_its_mode_is_filtered_again():
    state = a_state(sharing())
    fit, asking = Filter(state), share(20)
    assert fit.run(asking, ["a"]).unresolvable == {"a": Reason.MEMORY_SHARE}
    state.update_node("a", sharing(memory=24))
    assert fit.run(asking, ["a"]).names == ["a"]
    state.update_node("a", a_node("a"))
    assert fit.run(asking, ["a"]).unresolvable == {"a": Reason.MODE}


def test_a_node_that_shrank_below_its_use_fits_no_pod():
    state = a_state(sharing(memory=16), shares={"a": [GPUShare(0, mem=16)]})
    state.update_node("a", sharing(memory=8))

    assert Filter(state).run(share(1), ["a"]).unresolvable == {"a": Reason.UNACCOUNTED}


def test_request_changes_nothing():
    state = a_state(sharing("a"), a_node("b"))
    before = state.snapshot().ledger

    for asking in (share(10), pod(WHOLE)):
        fit = Filter(state)
        fit.run(asking, ("a", "b"))
        fit.score(asking, ("a", "b"))

    assert state.snapshot().ledger is before
