from dataclasses import replace
from typing import Any

import pytest
from builders import a_machine, a_member, a_node, a_snapshot, workers

from cluster.keys import GPU_CORE, GPU_MEM, GPU_WHOLE, NVIDIA_GPU, NVIDIA_GPU_SHARED
from cluster.ledger import NodeLedger
from cluster.node import Taint
from cluster.record import GPUShare
from scorer.group import group_of
from scorer.member import Member
from scorer.reason import Reason
from scorer.room import gpu_room, holds_all, obstacle, room, shortage, survey


def a_ledger(*shares: GPUShare, taken: tuple[int, ...] = (), **node: Any) -> NodeLedger:
    return a_snapshot(a_node(**node), taken={"node-0": taken}, shares={"node-0": shares}).nodes[0]


def opening(port: int, name: str = "worker-0") -> Member:
    limits = {"resources": {"limits": {GPU_WHOLE: 1}}, "name": "c"}
    return a_member(1, name, containers=[{**limits, "ports": [{"hostPort": port}]}])


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

    assert obstacle(a_ledger(**{"labels": {"zone": "z"}, **node}), member) is reason


def test_only_pods_whose_gpus_linkwise_chooses_shun_an_unaccounted_node():
    topology = replace(a_ledger(), unaccounted="somebody has GPUs")
    counted = replace(a_ledger(mode="default"), unaccounted="somebody has GPUs")

    assert obstacle(topology, a_member()) is Reason.UNACCOUNTED
    assert obstacle(counted, a_member(0, limits={NVIDIA_GPU: 1})) is None


FAMILIES = {
    "whole": ({GPU_WHOLE: 1}, {"topology"}),
    "memory": ({GPU_MEM: 1}, {"share", "cgpu", "core_mem", "mps"}),
    "compute": ({GPU_MEM: 1, GPU_CORE: 5}, {"core_mem", "mps"}),
    "replica": ({NVIDIA_GPU_SHARED: 1}, {"timeslice"}),
    "counted": ({NVIDIA_GPU: 1}, {"default"}),
}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    "mode", ["default", "topology", "share", "cgpu", "core_mem", "mps", "timeslice", "mig"]
)
def test_each_kind_of_request_goes_to_nodes_that_give_it_out(mode, family):
    limits, modes = FAMILIES[family]
    node = a_ledger(mode=mode, card_memory=8)

    found = room(node, group_of([a_member(0, limits=limits)]))

    assert (found is not Reason.MODE) == (mode in modes)
    assert isinstance(found, int) == (mode in modes)


@pytest.mark.parametrize(
    ("node", "found"),
    [
        ({}, 4),
        ({"taken": (1, 4, 7)}, 2),
        ({"taken": (1, 2, 3, 4, 5, 6, 7)}, Reason.GPUS),
        ({"unhealthy": (0,), "cordoned": (1, 2)}, 2),
        ({"pods": 3}, 3),
        ({"pods": 0}, Reason.PODS),
        ({"cpu": 7_999}, 1),
        ({"cpu": 3_999}, Reason.CPU),
        ({"memory": 2 << 30}, 2),
        ({"memory": 1}, Reason.MEMORY),
    ],
    ids=str,
)
def test_a_node_takes_so_many_workers(node, found):
    # Where other pods have some GPUs, one of them takes a pod slot.
    node = {**node, "pods": node.get("pods", 110) + 1}
    group = group_of(workers(9, 2, limits={"cpu": 4, "memory": "1Gi"}))

    assert room(a_ledger(**node), group) == found


def test_a_pod_without_cpu_fits_where_cpu_is_overdrawn():
    node = replace(a_ledger(), cpu_free=-500, memory_free_bytes=-1)

    assert room(node, group_of([a_member(2)])) == 4
    assert holds_all(node, group_of([a_member(2)]))
    assert room(node, group_of([a_member(2, limits={"cpu": "1m"})])) is Reason.CPU


def test_members_are_counted_as_the_most_demanding_of_them():
    members = [a_member(1, "a", limits={"cpu": 6}), a_member(1, "b", limits={"memory": "2Gi"})]

    node = a_ledger(cpu=12_000, memory=6 << 30)
    assert room(node, group_of(members)) == 2


def test_a_host_port_is_taken_once():
    node = a_ledger()
    taken = node.hold(opening(22).holding((GPUShare(0),)))

    assert room(node, group_of([opening(22)])) == 8
    assert room(taken, group_of([opening(22)])) is Reason.PORTS
    assert room(node, group_of([opening(22), opening(22, "worker-1")])) == 1
    assert room(node, group_of([opening(22), opening(23, "worker-1")])) == 8


@pytest.mark.parametrize(
    ("node", "members", "reason"),
    [
        ({}, workers(8, 1, limits={"cpu": 12, "memory": "96Gi"}), None),
        ({"unschedulable": True}, workers(2), Reason.CORDONED),
        ({"taken": (0,)}, workers(8), Reason.GPUS),
        ({"pods": 4}, workers(4), Reason.PODS),
        ({}, workers(8, 1, limits={"cpu": "12001m"}), Reason.CPU),
        ({}, workers(8, 1, limits={"memory": "97Gi"}), Reason.MEMORY),
        ({}, [opening(22), opening(22, "worker-1")], Reason.PORTS),
        ({}, [opening(22), opening(23, "worker-1"), a_member(1, "worker-2")], None),
    ],
    ids=["fits", "closed", "gpus", "pods", "cpu", "memory", "ports", "other ports"],
)
def test_all_members_fit_one_node_or_the_reason_is_told(node, members, reason):
    ledger = a_ledger(**node)

    assert shortage(ledger, group_of(members)) is reason
    assert holds_all(ledger, group_of(members)) is (reason is None)


def test_shares_are_judged_card_by_card():
    node = a_ledger(
        GPUShare(0, mem=6, core=50), machine=a_machine(2), mode="core_mem", card_memory=8
    )

    def fits(memory: int, core: int = 0) -> int | Reason:
        limits = {GPU_MEM: memory, **({GPU_CORE: core} if core else {})}
        return gpu_room(node, a_member(0, limits=limits).request)

    assert fits(8, 100) == 1
    assert fits(9, 5) is Reason.MEMORY_SHARE
    assert fits(1) is Reason.COMPUTE_TOO
    assert room(node, group_of([a_member(0, limits={GPU_MEM: 1})])) is Reason.COMPUTE_TOO


def test_replicas_and_counted_gpus_run_out():
    sliced = a_ledger(machine=a_machine(1), mode="timeslice")
    counted = a_ledger(mode="default", resources={NVIDIA_GPU: 3})

    assert gpu_room(sliced, a_member(0, limits={NVIDIA_GPU_SHARED: 4}).request) == 1
    assert gpu_room(sliced, a_member(0, limits={NVIDIA_GPU_SHARED: 5}).request) is Reason.REPLICAS
    assert gpu_room(counted, a_member(0, limits={NVIDIA_GPU: 1}).request) == 3
    assert gpu_room(counted, a_member(0, limits={NVIDIA_GPU: 4}).request) is Reason.GPUS


def test_a_survey_parts_the_nodes_in_their_order():
    nodes = a_snapshot(a_node("a"), a_node("b", unschedulable=True), a_node("c")).nodes

    able, blocked = survey(nodes, group_of([a_member(3)]))

    assert [(node.node.name, number) for node, number in able] == [("a", 2), ("c", 2)]
    assert blocked == [Reason.CORDONED]
