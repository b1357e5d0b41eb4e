import json
from copy import deepcopy
from dataclasses import replace

import jsonpatch
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import a_counted_node, a_gated_member, a_held_pod, a_node
from support.strategies import pods

from linkwise.cluster import keys
from linkwise.cluster.account.node_ledger import NodeLedger
from linkwise.cluster.allocations.gpus import Counted, Exact, GPUShare
from linkwise.cluster.allocations.record import Allocation, parse_record
from linkwise.cluster.keys import NVIDIA_GPU
from linkwise.cluster.nodes.node import MachineSource
from linkwise.cluster.objects.pod import Pod
from linkwise.planning.gang.patches import (
    allocation_annotations,
    allocation_of,
    allocation_patch,
    unpinned,
)
from linkwise.planning.placement.pods.member import new_member
from linkwise.planning.placement.result import Placement
from linkwise.policy.document import Containers
from linkwise.topology.table import table_of

NOW_NS = 1_800_000_000_000_000_000
HERE = {"key": keys.NODE_NAME_FIELD, "operator": "In", "values": ["gpu-1"]}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
WHOLE = (GPUShare(0, "GPU-a"), GPUShare(3, "GPU-b"))

_asks = st.sampled_from(
    (
        {keys.GPU_WHOLE: 2},
        {keys.GPU_MEM: 8},
        {keys.GPU_MEM: 8, keys.GPU_CORE: 30},
        {keys.NVIDIA_GPU_SHARED: 2},
    )
)
_key = {"key": "zone", "operator": "In", "values": ["a"]}
# Each term has lists of its own: a patch of a shared list would change several terms.
_some = st.none() | st.lists(st.just(_key), max_size=2)
_terms = st.lists(
    st.fixed_dictionaries({}, optional={"matchExpressions": _some, "matchFields": _some}),
    min_size=1,
    max_size=3,
)
_other_gates = st.lists(st.sampled_from(("a", "b", "c")), unique=True, max_size=2)


@st.composite
def held(draw):
    """A strategy for gated pods as an API server may store them."""
    raw = draw(pods())
    for container in (*raw["spec"]["containers"], *(raw["spec"].get("initContainers") or ())):
        container.pop("resources", None)
    raw["spec"]["containers"][0]["resources"] = {"limits": dict(draw(_asks))}
    raw["metadata"]["uid"] = "u1"
    if draw(st.booleans()):
        required = {REQUIRED: {"nodeSelectorTerms": draw(_terms)}}
        raw["spec"]["affinity"] = {"nodeAffinity": required, "podAffinity": {}}
    gates = draw(st.permutations([keys.GANG, *draw(_other_gates)]))
    raw["spec"]["schedulingGates"] = [{"name": gate} for gate in gates]
    return raw


NODE = a_node("gpu-1", card_memory=80)


def steps_for(raw, shares=WHOLE, node=NODE):
    member = new_member(msgspec.convert(raw, Pod), "team")
    placement = Placement(member, "gpu-1", Exact(shares))
    allocation = Allocation("gpu-1", Exact(shares), plan="7-1")
    record = allocation_annotations(
        placement, allocation, node, Containers(), term=7, now_ns=NOW_NS
    )
    return allocation_patch(member.pod, "gpu-1", record)


def wire(steps):
    return json.loads(msgspec.json.encode(steps))


def written(raw, shares=WHOLE, node=NODE):
    return jsonpatch.apply_patch(raw, wire(steps_for(raw, shares, node)))


def terms_of(raw):
    affinity = (raw["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    return (affinity.get(REQUIRED) or {}).get("nodeSelectorTerms") or []


def pinned(term):
    """Return a term with the node, as Kubernetes allows a gated pod to be narrowed down."""
    if not (term.get("matchExpressions") or term.get("matchFields")):
        return term
    return {**term, "matchFields": [*(term.get("matchFields") or ()), HERE]}


@given(held())
def test_the_patch_adds_the_record_and_the_node_and_removes_only_our_gate(raw):
    terms = terms_of(raw)
    before = raw["metadata"].get("annotations") or {}

    after = written(raw)

    annotations = after["metadata"]["annotations"]
    assert parse_record(annotations) == Allocation("gpu-1", Exact(WHOLE), plan="7-1")
    assert annotations[keys.TERM] == "7"
    assert {**annotations, **before}.keys() == annotations.keys()
    assert all(annotations[key] == before[key] for key in before.keys() - keys.RECORD)
    assert terms_of(after) == ([pinned(term) for term in terms] or [{"matchFields": [HERE]}])
    gates = [gate for gate in raw["spec"]["schedulingGates"] if gate["name"] != keys.GANG]
    assert after["spec"]["schedulingGates"] == gates
    assert rest_of(after) == rest_of(raw)


def rest_of(raw):
    """Return a pod without the fields that may change."""
    pod = deepcopy(raw)
    pod["metadata"].pop("annotations", None)
    del pod["spec"]["schedulingGates"]
    affinity = pod["spec"].pop("affinity", None) or {}
    nodes = affinity.pop("nodeAffinity", None) or {}
    required = nodes.pop(REQUIRED, None) or {}
    # The API server does not accept it without terms, so nothing of it remains.
    return pod, affinity, nodes, required if required.pop("nodeSelectorTerms", None) else {}


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda pod: pod["metadata"].update(uid="u2"), id="another pod"),
        pytest.param(lambda pod: pod["spec"]["schedulingGates"].pop(0), id="foreign gate removed"),
        pytest.param(lambda pod: pod["spec"]["schedulingGates"].pop(1), id="our gate removed"),
        pytest.param(
            lambda pod: pod["spec"]["schedulingGates"].append({"name": "c"}), id="added gate"
        ),
        pytest.param(lambda pod: pod["spec"].pop("schedulingGates"), id="no gates"),
    ],
)
def test_the_patch_applies_only_to_the_planned_pod_and_gates(change):
    raw = a_held_pod(2, gates=("other", keys.GANG))
    steps = wire(steps_for(raw))
    change(raw)

    with pytest.raises(jsonpatch.JsonPatchException):
        jsonpatch.apply_patch(raw, steps)


def test_the_patch_tests_before_it_writes():
    operations = [step["op"] for step in steps_for(a_held_pod(2))]

    assert operations[:2] == ["test", "test"]
    assert "test" not in operations[2:]
    assert operations[-1] == "remove"


def test_a_share_has_the_annotations_of_gpushare():
    raw = a_held_pod(0)
    raw["spec"]["containers"][0]["resources"]["limits"] = {keys.GPU_MEM: 8}

    after = written(raw, (GPUShare(2, None, 8),))["metadata"]["annotations"]

    assert after[keys.MEM_IDX] == "2"
    assert after[keys.MEM_POD] == "8"
    assert after[keys.MEM_DEV] == "80"
    assert after[keys.MEM_ASSUME_TIME] == str(NOW_NS)
    assert after[keys.ISOLATION] == "none"


def test_a_share_has_the_isolation_of_its_node():
    raw = a_held_pod(0)
    raw["spec"]["containers"][0]["resources"]["limits"] = {keys.GPU_MEM: 8}

    after = written(raw, (GPUShare(2, None, 8),), a_node(mode="cgpu", card_memory=80))

    assert after["metadata"]["annotations"][keys.ISOLATION] == "cgpu"


@pytest.mark.parametrize(
    ("gpus", "table", "bandwidth"),
    [
        pytest.param((0, 3), True, 40.0, id="several GPUs"),
        pytest.param((0,), True, None, id="one GPU has no bandwidth"),
        pytest.param((0, 3), False, None, id="unknown machine"),
    ],
)
def test_a_record_has_the_bandwidth_of_its_gpus(gpus, table, bandwidth):
    known = table_of(a_node().machine) if table else None
    shares = tuple(GPUShare(i) for i in gpus)
    member = new_member(msgspec.convert(a_held_pod(len(gpus)), Pod), "team")

    node = NodeLedger.empty(a_node("gpu-1"))
    record = allocation_of(Placement(member, "gpu-1", Exact(shares)), node, known, "7-1")

    assert (record.node, record.gpus, record.plan) == ("gpu-1", Exact(shares), "7-1")
    assert record.machine_class == (known.key if known else None)
    assert record.bandwidth == bandwidth


@pytest.mark.parametrize(
    ("gpus", "source", "known"),
    [
        pytest.param(8, MachineSource.POLICY, True, id="the whole node"),
        pytest.param(4, MachineSource.POLICY, False, id="a part of it"),
        pytest.param(1, MachineSource.POLICY, False, id="one GPU"),
        pytest.param(8, MachineSource.UNKNOWN, False, id="unknown machine"),
    ],
)
def test_a_record_of_a_counted_node_has_a_bandwidth_only_of_the_whole_node(gpus, source, known):
    node = NodeLedger.empty(a_counted_node("gpu-1", machine_source=source))
    placement = Placement(a_gated_member(gpus), "gpu-1", Counted(NVIDIA_GPU, gpus))

    record = allocation_of(placement, node, table_of(a_node().machine), "7-1")

    assert record.gpus == Counted(NVIDIA_GPU, gpus)
    assert (record.bandwidth is not None) is known


@pytest.mark.parametrize("by_claim", [False, True], ids=["by record", "by claim"])
def test_only_one_of_claim_and_cdi_annotations_gives_a_pod_its_gpus(by_claim):
    member = a_gated_member(2)
    member = replace(member, request=msgspec.structs.replace(member.request, by_claim=by_claim))
    placement = Placement(member, "gpu-1", Exact(WHOLE))
    record = allocation_annotations(
        placement,
        Allocation("gpu-1", Exact(WHOLE), plan="7-1"),
        NODE,
        Containers(gpuInjection="nri"),
        term=7,
        now_ns=NOW_NS,
    )
    assert any(key.startswith(keys.NVIDIA_CDI_CONTAINER) for key in record) is not by_claim


TERM = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}


@pytest.mark.parametrize(
    "terms",
    [
        None,
        [TERM],
        [TERM, {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}],
        [{**TERM, "matchFields": [HERE]}],
    ],
    ids=["nothing", "a term", "two terms", "a node"],
)
def test_a_pod_without_our_pin_requires_what_it_required_before(terms):
    affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}} if terms else None
    raw = a_held_pod(2, **({"affinity": affinity} if affinity else {}))
    before = msgspec.convert(raw, Pod)

    written = msgspec.to_builtins(allocation_patch(before, "gpu-1", {}))
    written = [step for step in written if not step["path"].startswith("/metadata/annotations")]
    after = msgspec.convert(jsonpatch.apply_patch(raw, written), Pod)

    left = unpinned(after, "gpu-1")
    assert left.spec.required_nodes == before.spec.required_nodes
