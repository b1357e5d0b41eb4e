from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from support.builders import (
    a_claimed_pod,
    a_container,
    a_counted_node,
    a_machine,
    a_node,
    a_pod,
    an_exact_node,
)

from linkwise.cluster.account.accounting import ledger_of
from linkwise.cluster.account.ledger import Conflict, Ledger
from linkwise.cluster.account.node_ledger import NodeLedger
from linkwise.cluster.allocations.gpus import Exact, GPUShare
from linkwise.cluster.allocations.record import Allocation, Isolation, format_record
from linkwise.cluster.keys import (
    ALLOCATION,
    ARENA_GPU_GROUP,
    GANG,
    GANG_SIZE,
    GPU_CORE,
    GPU_MEM,
    GPU_WHOLE,
    MEM_IDX,
    MEM_POD,
    NVIDIA_GPU,
    NVIDIA_GPU_SHARED,
)
from linkwise.cluster.mode import NodeMode
from linkwise.cluster.nodes.device_claims import Device, HeldClaim
from linkwise.cluster.nodes.node import DevicePool, Node
from linkwise.cluster.nodes.node_devices import ClaimedGPUs, without_claimed
from linkwise.cluster.objects.pod import Pod
from linkwise.cluster.requests.request_reader import read_request

WHOLE = {GPU_WHOLE: 1}
SHARE = {GPU_MEM: 4, GPU_CORE: 30}


def pod(
    name: str,
    limits: dict[str, Any] | None = None,
    *,
    bound: str = "",
    record: tuple[str, *tuple[GPUShare, ...]] | None = None,
    annotations: dict[str, str] | None = None,
    age: int = 0,
    phase: str = "Running",
    **spec: Any,
) -> Pod:
    raw = a_pod(limits or {}, name=name, annotations=annotations or {}, nodeName=bound, **spec)
    raw["metadata"]["creationTimestamp"] = f"2026-01-01T00:00:{age:02}Z"
    raw["status"] = {"phase": phase}
    if record:
        node, *gpus = record
        raw["metadata"]["annotations"] |= format_record(
            Allocation(node, Exact(tuple(gpus))),
            request=read_request(msgspec.convert(raw, Pod))[0],
            term=1,
            isolation=Isolation.NONE,
            now_ns=0,
            node_card_memory=None,
        )
    return msgspec.convert(raw, Pod)


def whole_on(name: str, node: str, *gpus: int, **fields: Any) -> Pod:
    record = (node, *(GPUShare(i) for i in gpus))
    return pod(name, {GPU_WHOLE: len(gpus)}, record=record, **fields)


def nodes() -> list[Node]:
    return [
        a_node("whole-0"),
        a_node("whole-1"),
        a_node("share-0", machine=a_machine(4), mode="core_mem", card_memory=15),
        a_node("slice-0", machine=a_machine(2), mode="timeslice"),
        a_node("plain-0", mode="default"),
    ]


def test_nvidia_gpus_of_an_exact_node_are_held_by_record():
    placed = pod(
        "a", {NVIDIA_GPU: 2}, record=("exact-0", GPUShare(0), GPUShare(3)), bound="exact-0"
    )

    node = ledger_of([an_exact_node()], [placed]).nodes["exact-0"]

    assert node.free_mask == 0b11110110
    assert node.unaccounted is None


def test_nvidia_gpus_without_a_record_make_an_exact_node_unaccounted():
    node = ledger_of([an_exact_node()], [pod("a", {NVIDIA_GPU: 1}, bound="exact-0")])

    assert "has GPUs of this node, but no" in str(node.nodes["exact-0"].unaccounted)


@pytest.mark.parametrize(
    ("fields", "free"),
    [
        pytest.param({}, 6, id="pod of another scheduler, without any mark"),
        pytest.param({"phase": "Pending"}, 6, id="bound, not started"),
        pytest.param({"phase": "Succeeded"}, 8, id="succeeded"),
        pytest.param({"phase": "Failed"}, 8, id="failed"),
        pytest.param(
            {"initContainers": [a_container({NVIDIA_GPU: 5}, name="first")]},
            3,
            id="larger init container",
        ),
        pytest.param(
            {"initContainers": [a_container({NVIDIA_GPU: 1}, name="s", restartPolicy="Always")]},
            5,
            id="sidecar",
        ),
    ],
)
def test_pods_of_a_counted_node_hold_what_the_scheduler_counts(fields: dict[str, Any], free: int):
    node = a_counted_node("n", resources={NVIDIA_GPU: 8})

    held = ledger_of([node], [pod("a", {NVIDIA_GPU: 2}, bound="n", **fields)]).nodes["n"]

    assert (held.gpus_free, held.unaccounted) == (free, None)


def test_pods_of_a_counted_node_stay_counted_while_the_plugin_restarts():
    restarting = a_counted_node("n", resources={NVIDIA_GPU: 0})

    held = ledger_of([restarting], [pod("a", {NVIDIA_GPU: 2}, bound="n")]).nodes["n"]

    assert (held.gpus_free, held.counted_free(NVIDIA_GPU), held.unaccounted) == (0, -2, None)


@pytest.mark.parametrize("node", [a_counted_node("n"), an_exact_node("n")], ids=["count", "exact"])
def test_more_gpus_than_a_64_bit_number_can_count_are_accounted(node: Node):
    # An API server accepts at most 2**63 - 1 for each container.
    spec = {"containers": [a_container({NVIDIA_GPU: 2**63 - 1}, name=name) for name in "ab"]}

    held = ledger_of([node], [pod("x", bound="n", **spec)]).nodes["n"]

    assert (held.gpus_free, held.without_gpu_pods.holdings) == (0, {})


def test_a_node_whose_mode_offers_aliyun_gpus_is_accounted_beside_pods_of_nvidias_plugin():
    node = ledger_of([a_node("whole-0")], [pod("a", {NVIDIA_GPU: 1}, bound="whole-0")])

    assert node.nodes["whole-0"].unaccounted is None


def account(*pods: Pod, migrate: bool = False) -> Ledger:
    return ledger_of(nodes(), pods, migrate=migrate)


def test_a_cluster_without_pods_has_everything_free():
    ledger = account()

    assert set(ledger.nodes) == {node.name for node in nodes()}
    assert ledger.nodes["whole-0"].free_mask == 0b11111111
    assert ledger.conflicts == ()


def test_bound_pods_hold_what_their_records_say():
    ledger = account(
        whole_on("a", "whole-0", 0, 3, bound="whole-0"),
        pod("b", SHARE, record=("share-0", GPUShare(1, mem=4, core=30)), bound="share-0"),
        pod("c", {NVIDIA_GPU_SHARED: 1}, record=("slice-0", GPUShare(1)), bound="slice-0"),
        pod("d", {NVIDIA_GPU: 3, "cpu": 2}, bound="plain-0"),
        pod("e", {"memory": "1Ki"}, bound="whole-0"),
    )

    assert ledger.nodes["whole-0"].free_mask == 0b11110110
    assert ledger.nodes["whole-0"].memory_free_bytes == (768 << 30) - 1024
    assert ledger.nodes["share-0"].memory_free(1) == 11
    assert ledger.nodes["share-0"].core_free(1) == 70
    assert ledger.nodes["slice-0"].replicas_free(1) == 3
    assert ledger.nodes["plain-0"].counted_free(NVIDIA_GPU) == 5
    assert ledger.nodes["plain-0"].cpu_free == 94_000
    assert all(node.unaccounted is None for node in ledger.nodes.values())


def test_replicas_of_nvidias_plugin_are_counted_and_those_without_a_record_hide_what_is_free():
    ledger = account(
        pod("a", {NVIDIA_GPU_SHARED: 2}, bound="plain-0"),
        pod("b", {NVIDIA_GPU_SHARED: 1}, bound="slice-0"),
    )

    assert ledger.nodes["plain-0"].counted_free(NVIDIA_GPU_SHARED) == -2
    assert ledger.nodes["plain-0"].counted_free(NVIDIA_GPU) == 8
    assert ledger.nodes["plain-0"].unaccounted is None
    assert "has GPUs of this node, but no" in str(ledger.nodes["slice-0"].unaccounted)


def test_a_placed_pod_that_is_not_bound_yet_holds_its_gpus():
    ledger = account(whole_on("a", "whole-0", 5, phase="Pending"))

    assert ledger.nodes["whole-0"].free_mask == 0b11011111


def test_pending_finished_and_foreign_pods_hold_nothing():
    ledger = account(
        pod("a", WHOLE, phase="Pending"),
        whole_on("b", "whole-0", 0, bound="whole-0", phase="Succeeded"),
        whole_on("c", "whole-0", 1, bound="whole-0", phase="Failed"),
        whole_on("d", "whole-9", 1, bound="whole-9"),
        pod("e", {"cpu": 1}),
    )

    assert ledger == account()


def test_members_of_a_gang_are_held_with_its_name():
    mark = {GANG: "train", GANG_SIZE: "2"}
    member = whole_on("a", "whole-0", 0, bound="whole-0", annotations=mark)
    launcher = pod("b", annotations=mark, bound="whole-0")

    held = account(member, launcher).nodes["whole-0"].holdings

    assert {one.pod: one.gang for one in held.values()} == {
        "default/a": "default/train",
        "default/b": None,
    }


@pytest.mark.parametrize(
    ("node", "bad", "reason"),
    [
        (
            "whole-0",
            pod("x", WHOLE, bound="whole-0"),
            f"has GPUs of this node, but no {ALLOCATION}",
        ),
        ("share-0", pod("x", SHARE, bound="share-0"), "has GPUs of this node"),
        ("whole-0", whole_on("x", "whole-1", 0, bound="whole-0"), "names node whole-1"),
        ("whole-0", whole_on("x", "whole-0", 8, bound="whole-0"), "has GPU8"),
        ("whole-0", whole_on("x", "whole-0", 1, bound="whole-0"), "GPU1 of whole-0 is taken"),
        (
            "whole-0",
            pod("x", WHOLE, bound="whole-0", annotations={ALLOCATION: "{"}),
            f"{ALLOCATION}: ",
        ),
        ("slice-0", whole_on("x", "slice-0", 0, bound="slice-0"), "mode, timeslice, does not"),
        ("plain-0", pod("x", SHARE, bound="plain-0"), "mode, default, does not offer"),
    ],
    ids=[
        "no record",
        "no record of a share",
        "elsewhere",
        "unknown GPU",
        "twice",
        "broken",
        "mode",
        "no mode",
    ],
)
def test_node_with_pods_whose_gpus_are_unknown_is_unaccounted(node, bad, reason):
    good = whole_on("a", "whole-0", 1, bound="whole-0")

    ledger = account(good, bad)

    assert ledger.nodes[node].unaccounted.startswith("default/x: ")
    assert reason in ledger.nodes[node].unaccounted
    assert "default/x" in ledger.nodes[node].holdings
    others = [one for name, one in ledger.nodes.items() if name != node]
    assert all(other.unaccounted is None for other in others)


def test_a_node_whose_agent_reports_a_mismatch_is_unaccounted():
    node = a_node("a", mismatch="process 7 uses GPU 3, which no pod has")

    ledger = ledger_of([node, a_node("b")], [whole_on("x", "a", 1, bound="a")]).nodes

    assert ledger["a"].unaccounted == f"its agent reports: {node.mismatch}"
    assert not ledger["a"].free_mask & 1 << 1
    assert (ledger["a"].gpus_free, ledger["b"].unaccounted) == (0, None)


def test_the_first_reason_stays():
    ledger = account(
        pod("x", WHOLE, bound="whole-0", age=2), pod("y", WHOLE, bound="whole-0", age=1)
    )

    assert ledger.nodes["whole-0"].unaccounted.startswith("default/y: ")


def test_a_pod_that_occurs_twice_makes_its_node_unaccounted():
    twice = pod("x", {"cpu": 1}, bound="whole-0")

    ledger = account(twice, twice)

    assert "is on whole-0 already" in ledger.nodes["whole-0"].unaccounted
    assert ledger.nodes["whole-0"].cpu_free == 95_000


@pytest.mark.parametrize(
    ("loser", "conflict"),
    [
        (
            whole_on("x", "whole-0", 1),
            Conflict("default/x", "default/x", "whole-0", "GPU1 of whole-0 is taken already"),
        ),
        (
            whole_on("x", "whole-9", 1),
            Conflict("default/x", "default/x", "whole-9", "there is no node whole-9"),
        ),
        (
            pod("x", WHOLE, annotations={ALLOCATION: ""}),
            Conflict(
                "default/x", "default/x", None, f"{ALLOCATION}: no JSON: Input data was truncated"
            ),
        ),
    ],
    ids=["taken", "no node", "broken"],
)
def test_a_pod_that_is_not_bound_gives_way(loser, conflict):
    holder = whole_on("a", "whole-0", 1, bound="whole-0", age=9)

    ledger = account(loser, holder)

    assert ledger.conflicts == (conflict,)
    assert ledger.nodes["whole-0"].unaccounted is None
    assert set(ledger.nodes["whole-0"].holdings) == {"default/a"}


def test_of_two_pods_that_are_not_bound_the_younger_gives_way():
    ledger = account(whole_on("a", "whole-0", 1, age=5), whole_on("b", "whole-0", 1, age=4))

    assert [conflict.pod for conflict in ledger.conflicts] == ["default/a"]


@pytest.mark.parametrize(
    ("node", "limits", "annotations", "free"),
    [
        ("share-0", {GPU_MEM: 4}, {MEM_IDX: "2", MEM_POD: "4"}, (15, 15, 11, 15)),
        ("whole-0", {GPU_WHOLE: 2}, {ARENA_GPU_GROUP: "0,7"}, 0b01111110),
    ],
)
def test_other_schedulers_records_count_only_while_migrating(node, limits, annotations, free):
    theirs = pod("x", limits, bound=node, annotations=annotations)

    before = account(theirs).nodes[node]
    during = account(theirs, migrate=True).nodes[node]

    assert before.unaccounted is not None
    assert during.unaccounted is None
    if node == "share-0":
        assert tuple(map(during.memory_free, range(4))) == free
    else:
        assert during.free_mask == free


def test_while_migrating_our_record_goes_before_others():
    ours = whole_on("a", "whole-0", 4, bound="whole-0", annotations={MEM_IDX: "0", MEM_POD: "1"})

    assert account(ours, migrate=True).nodes["whole-0"].free_mask == 0b11101111


@pytest.mark.parametrize("resource", [GPU_WHOLE, GPU_MEM, NVIDIA_GPU_SHARED])
def test_a_pod_that_asks_for_0_leaves_its_node_accounted(resource):
    ledger = account(pod("x", {resource: "0"}, bound="whole-0"))

    assert ledger.nodes["whole-0"].unaccounted is None


def test_unplaced_pod_stays_unaccounted_while_migrating():
    ledger = account(pod("x", WHOLE, bound="whole-0"), migrate=True)

    assert ledger.nodes["whole-0"].unaccounted is not None


CROWD = [
    *(whole_on(f"a{i}", "whole-0", i, bound="whole-0") for i in range(3)),
    *(whole_on(f"b{i}", "whole-0", 2) for i in range(3)),
    pod("c", WHOLE, bound="whole-1"),
    pod("d", WHOLE, bound="whole-1"),
]


@given(st.permutations(CROWD))
@settings(max_examples=25)
def test_the_order_of_the_pods_does_not_matter(pods):
    assert account(*pods) == account(*CROWD)


@pytest.mark.parametrize(
    ("owner", "stays"), [("DaemonSet", True), ("Node", True), ("Job", False), (None, False)]
)
def test_a_pod_that_is_there_for_as_long_as_its_node_keeps_its_gpus(owner, stays):
    raw = a_pod({NVIDIA_GPU: 2}, name="a", owner=owner, nodeName="node-0")
    ledger = ledger_of([a_node(mode="default")], [msgspec.convert(raw, Pod)]).nodes["node-0"]

    assert (ledger.without_gpu_pods is ledger) is stays


def a_claims_node(*uuids: str, missing: str | None = None) -> Node:
    devices = tuple(f"gpu-{i}" for i in range(len(uuids)))
    node = a_node("c", machine=a_machine(len(uuids)), pool=DevicePool("c", devices, 0, missing))
    return replace(
        node, cards=tuple(replace(c, uuid=u) for c, u in zip(node.cards, uuids, strict=True))
    )


def by_claim(*gpus: tuple[int, str], bound: str = "c") -> Pod:
    raw = a_claimed_pod(len(gpus), annotations={}, nodeName=bound)
    raw["metadata"]["annotations"] |= format_record(
        Allocation("c", Exact(tuple(GPUShare(i, uuid) for i, uuid in gpus))),
        request=read_request(msgspec.convert(raw, Pod))[0],
        term=1,
        isolation=Isolation.NONE,
        now_ns=0,
        node_card_memory=None,
    )
    return msgspec.convert(raw, Pod)


def test_gpus_of_a_claims_node_are_those_of_the_recorded_uuids():
    # A GPU before them has gone since the pod was placed, so that their indices are others.
    ledger = ledger_of([a_claims_node("GPU-b", "GPU-c")], [by_claim((1, "GPU-b"))])
    assert ledger.nodes["c"].free_mask == 0b10


def test_gpus_of_a_claims_node_are_those_that_the_claim_of_the_pod_holds():
    name = f"lw-{'0' * 32}"
    own = HeldClaim("default", name, "u", "default/pod", frozenset({Device("c", "c", "gpu-1")}))
    claims_of_others = [
        structs.replace(own, owner="default/other"),
        structs.replace(own, namespace="other"),
        structs.replace(own, name="lw-1"),
    ]
    node, pod = a_claims_node("GPU-a", "GPU-b", "GPU-c"), by_claim((0, "GPU-a"))

    assert ledger_of([node], [pod], claims=[own]).nodes["c"].free_mask == 0b101
    for claim in claims_of_others:
        assert ledger_of([node], [pod], claims=[claim]).nodes["c"].free_mask == 0b110


@pytest.mark.parametrize("is_claims", [True, False], ids=["claims node", "exact node"])
def test_a_mismatch_is_a_report_of_the_agent_where_there_is_one(is_claims: bool):
    node = a_claims_node("GPU-a") if is_claims else a_node("c")
    node = replace(node, mismatch="they differ")
    reason = ledger_of([node], []).nodes["c"].unaccounted
    assert reason == ("they differ" if is_claims else "its agent reports: they differ")


@pytest.mark.parametrize(
    "node",
    [
        a_claims_node("GPU-a", missing="the driver's slices are missing"),
        Node("c", mode=NodeMode.TOPOLOGY),
    ],
    ids=["some of its last GPUs are known", "the scorer has started without slices"],
)
@pytest.mark.parametrize("bound", ["c", ""], ids=["bound", "not bound yet"])
def test_gpus_that_missing_slices_lack_are_not_gone(node: Node, bound: str):
    ledger = ledger_of([node], [by_claim((1, "GPU-b"), bound=bound)])

    assert ledger.conflicts == ()
    assert "GPU-b" in (ledger.nodes["c"].unaccounted or "") or not node.cards
    assert ledger.nodes["c"].unaccounted
    assert set(ledger.nodes["c"].holdings) == {"default/pod"}


def test_a_pod_that_is_not_bound_gives_way_if_complete_slices_lack_its_gpu():
    ledger = ledger_of([a_claims_node("GPU-a")], [by_claim((1, "GPU-b"), bound="")])
    assert len(ledger.conflicts) == 1
    assert ledger.nodes["c"].unaccounted is None


def test_no_gpu_is_free_while_slices_are_missing():
    missing = NodeLedger.empty(a_claims_node("GPU-a", missing="the driver's slices are missing"))
    assert (missing.gpus_free, NodeLedger.empty(a_claims_node("GPU-a")).gpus_free) == (0, 1)


def test_gpus_of_claims_are_held_like_those_of_pods():
    node = a_claims_node("GPU-a", "GPU-b")
    closed = without_claimed(node, ClaimedGPUs(frozenset({"GPU-a"})))
    ledger = ledger_of([closed], [by_claim((1, "GPU-b"))]).nodes["c"]

    assert (ledger.free_mask, ledger.ignoring_unhealthy.free_mask) == (0, 0)
    assert (ledger.without_gpu_pods.free_mask, ledger.without_pods().free_mask) == (0b11, 0b11)
