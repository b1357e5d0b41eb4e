from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs
from support.builders import a_machine, a_member, a_node, a_snapshot, an_exact_node

from linkwise.cluster.account.node_ledger import NodeLedger
from linkwise.cluster.allocations.gpus import GPUShare
from linkwise.cluster.keys import (
    GPU_CORE,
    GPU_MEM,
    GPU_WHOLE,
    NODE_MODE,
    NVIDIA_GPU,
    NVIDIA_GPU_SHARED,
)
from linkwise.cluster.nodes.node import DevicePool, Taint
from linkwise.planning.placement.filtering.filters import filter_node, gpu_capacity, mode_serves
from linkwise.planning.placement.filtering.reasons import Reason


def a_ledger(*shares: GPUShare, taken: tuple[int, ...] = (), **node: Any) -> NodeLedger:
    return a_snapshot(a_node(**node), taken={"node-0": taken}, shares={"node-0": shares}).nodes[0]


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        ({}, None),
        ({"ready": False, "unschedulable": True}, Reason.NOT_READY),
        ({"unschedulable": True}, Reason.CORDONED),
        ({"mode": "share"}, Reason.MODE),
        ({"mode": "mig"}, Reason.MODE),
        ({"taints": (Taint("a", "b", "NoSchedule"),)}, Reason.TAINT),
        ({"taints": (Taint("a", "b", "PreferNoSchedule"),)}, None),
        ({"taints": (Taint("ok", "b", "NoExecute"),)}, None),
        ({"labels": {"zone": "y"}}, Reason.SELECTOR),
    ],
)
def test_a_node_may_be_closed_to_a_pod_whatever_is_free(node, reason):
    member = a_member(nodeSelector={"zone": "z"}, tolerations=[{"key": "ok", "operator": "Exists"}])

    assert filter_node(a_ledger(**{"labels": {"zone": "z"}, **node}), member) is reason


EXISTS = {"operator": "Exists"}
NOT_READY = {"key": "node.kubernetes.io/not-ready", **EXISTS}
UNREACHABLE = {"key": "node.kubernetes.io/unreachable", **EXISTS}
CORDON = {"key": "node.kubernetes.io/unschedulable", **EXISTS}
NO_EXECUTE = {"effect": "NoExecute"}


def tainted(toleration: dict[str, str], effect: str = "NoSchedule") -> dict[str, Any]:
    return {"taints": (Taint(toleration["key"], "", effect),)}


@pytest.mark.parametrize(
    ("node", "tolerations", "reason"),
    [
        ({"unschedulable": True}, [CORDON], None),
        ({"unschedulable": True}, [EXISTS], None),
        ({"unschedulable": True, **tainted(CORDON)}, [{**CORDON, "effect": "NoSchedule"}], None),
        ({"unschedulable": True}, [CORDON | NO_EXECUTE], Reason.CORDONED),
        ({"unschedulable": True}, [NOT_READY, UNREACHABLE], Reason.CORDONED),
        (tainted(CORDON), [], Reason.TAINT),
        ({"ready": False}, [EXISTS], None),
        ({"ready": False}, [NOT_READY, UNREACHABLE], None),
        ({"ready": False}, [NOT_READY], Reason.NOT_READY),
        ({"ready": False, **tainted(NOT_READY)}, [NOT_READY], None),
        ({"ready": False, **tainted(UNREACHABLE)}, [NOT_READY], Reason.NOT_READY),
        ({"ready": False}, [NOT_READY | NO_EXECUTE, UNREACHABLE | NO_EXECUTE], Reason.NOT_READY),
        ({"ready": False, "unschedulable": True}, [NOT_READY, UNREACHABLE], Reason.CORDONED),
        (tainted(NOT_READY, "NoExecute"), [NOT_READY | NO_EXECUTE], None),
    ],
)
def test_a_closed_node_is_open_to_pods_that_tolerate_it(node, tolerations, reason):
    assert filter_node(a_ledger(**node), a_member(tolerations=tolerations)) is reason


def test_only_pods_whose_gpus_linkwise_chooses_shun_an_unaccounted_node():
    topology = replace(a_ledger(), unaccounted="an unknown pod has GPUs")
    counted = replace(a_ledger(mode="default"), unaccounted="an unknown pod has GPUs")

    assert filter_node(topology, a_member()) is Reason.UNACCOUNTED
    assert filter_node(counted, a_member(0, limits={NVIDIA_GPU: 1})) is None


def test_shares_are_judged_card_by_card():
    node = a_ledger(
        GPUShare(0, mem=6, core=50), machine=a_machine(2), mode="core_mem", card_memory=8
    )

    def fits(memory: int, core: int = 0) -> int | Reason:
        limits = {GPU_MEM: memory, **({GPU_CORE: core} if core else {})}
        return gpu_capacity(node, a_member(0, limits=limits).request)

    assert fits(8, 100) == 1
    assert fits(9, 5) is Reason.MEMORY_SHARE
    assert fits(1) is Reason.COMPUTE_TOO


@pytest.mark.parametrize(
    ("node", "limits"),
    [
        ({"mode": "topology"}, {GPU_WHOLE: 2}),
        ({"mode": "core_mem", "card_memory": 8}, {GPU_MEM: 8}),
        ({"mode": "timeslice"}, {NVIDIA_GPU_SHARED: 8}),
    ],
    ids=["whole", "share", "replicas"],
)
def test_reason_names_cordoned_and_unhealthy_cards_where_they_would_be_enough(node, limits):
    request = a_member(0, limits=limits).request
    broken = {"machine": a_machine(2), "unhealthy": (0,), "cordoned": (1,)}

    assert gpu_capacity(a_ledger(**node, **broken), request) is Reason.UNUSABLE
    assert gpu_capacity(a_ledger(**node, **{**broken, "machine": a_machine(4)}), request) == 1


def test_whole_gpus_are_served_under_the_name_by_which_a_node_offers_them():
    exact, aliyun = NodeLedger.empty(an_exact_node()), a_ledger()
    nvidia = a_member(0, limits={NVIDIA_GPU: 2}, nodeSelector={NODE_MODE: "topology"})

    assert filter_node(exact, nvidia) is None
    assert filter_node(aliyun, nvidia) is Reason.MODE
    assert filter_node(exact, a_member(2)) is Reason.MODE
    assert filter_node(exact, a_member(0, limits={NVIDIA_GPU: 2})) is Reason.MODE
    assert gpu_capacity(exact, nvidia.request) == 4


def test_whole_gpus_by_claim_are_served_by_claims_nodes_alone():
    plain = a_member(0, limits={NVIDIA_GPU: 2}, nodeSelector={NODE_MODE: "topology"})
    by_claim = replace(plain, request=structs.replace(plain.request, by_claim=True))
    labels = {NODE_MODE: "topology"}
    pool = DevicePool("node-0", ("gpu-0", "gpu-1"))
    claims = a_ledger(machine=a_machine(2), pool=pool, labels=labels)
    gone = a_ledger(machine=a_machine(2), pool=replace(pool, missing="gone"), labels=labels)
    never = a_ledger(machine=None, pool=DevicePool("node-0", (), missing="gone"), labels=labels)

    assert filter_node(claims, by_claim) is None
    assert gpu_capacity(claims, by_claim.request) == 1
    assert filter_node(gone, by_claim) is Reason.SLICES
    assert filter_node(never, by_claim) is Reason.SLICES
    assert filter_node(claims, plain) is Reason.MODE
    assert filter_node(NodeLedger.empty(an_exact_node()), by_claim) is Reason.MODE


def test_replicas_and_counted_gpus_run_out():
    sliced = a_ledger(machine=a_machine(1), mode="timeslice")
    counted = a_ledger(mode="default", resources={NVIDIA_GPU: 3})

    assert gpu_capacity(sliced, a_member(0, limits={NVIDIA_GPU_SHARED: 4}).request) == 1
    assert (
        gpu_capacity(sliced, a_member(0, limits={NVIDIA_GPU_SHARED: 5}).request) is Reason.REPLICAS
    )
    assert gpu_capacity(counted, a_member(0, limits={NVIDIA_GPU: 1}).request) == 3
    assert gpu_capacity(counted, a_member(0, limits={NVIDIA_GPU: 4}).request) is Reason.GPUS


def test_replicas_of_nvidias_plugin_are_counted_apart_from_whole_gpus():
    node = a_ledger(machine=None, mode="default", resources={NVIDIA_GPU_SHARED: 4})
    replica = a_member(0, limits={NVIDIA_GPU_SHARED: 1}, nodeSelector={})

    assert mode_serves(node.node, replica.request)
    assert gpu_capacity(node, replica.request) == 4
    taken = node.hold(replica.holding(replica.counted_gpus))
    assert gpu_capacity(taken, replica.request) == 3
    assert gpu_capacity(taken, a_member(0, limits={NVIDIA_GPU: 1}).request) is Reason.GPUS
