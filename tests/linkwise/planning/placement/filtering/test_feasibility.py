from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from support.builders import (
    TIED,
    a_gated_member,
    a_member,
    a_node,
    a_snapshot,
    an_exact_node,
    exact,
    workers,
)
from support.strategies import RACK, clusters, gangs

from linkwise.cluster.account.ledger import Ledger
from linkwise.cluster.account.node_ledger import Holding, NodeLedger
from linkwise.cluster.allocations.gpus import GPUShare
from linkwise.cluster.keys import (
    GPU_CORE,
    GPU_MEM,
    GPU_WHOLE,
    NODE_NAME_FIELD,
    NVIDIA_GPU,
    NVIDIA_GPU_SHARED,
)
from linkwise.cluster.nodes.node import Taint
from linkwise.cluster.requests.class_resources import ClassResources
from linkwise.cluster.requests.demand import Demand
from linkwise.planning.placement.filtering.feasibility import (
    Feasibility,
    excluded,
    feasibility_of,
    feasibility_of_all,
)
from linkwise.planning.placement.filtering.filters import filter_node
from linkwise.planning.placement.filtering.reasons import Cause, Reason, Shortage
from linkwise.planning.placement.pods.group import Group, new_group
from linkwise.planning.placement.pods.member import Member
from linkwise.planning.placement.result import Plan
from linkwise.planning.placement.schedule import plan
from linkwise.planning.placement.state.node_columns import labels
from linkwise.planning.placement.state.snapshot import snapshot_of


def a_ledger(*shares: GPUShare, taken: tuple[int, ...] = (), **node: Any) -> NodeLedger:
    return a_snapshot(a_node(**node), taken={"node-0": taken}, shares={"node-0": shares}).nodes[0]


def opening(port: int, name: str = "worker-0") -> Member:
    limits = {"resources": {"limits": {GPU_WHOLE: 1}}, "name": "c"}
    return a_member(1, name, containers=[{**limits, "ports": [{"hostPort": port}]}])


def only_answer(found: Feasibility) -> int | Cause:
    """Return the answer of the only node."""
    (why,) = found.blocked or [None]
    assert (why is None) is bool(found.capacity[0])
    return why or int(found.capacity[0])


def room(node: NodeLedger, group: Group) -> int | Cause:
    return only_answer(feasibility_of(snapshot_of(Ledger({node.node.name: node})), group))


def shortage(node: NodeLedger, group: Group) -> Cause | None:
    found = only_answer(feasibility_of_all(snapshot_of(Ledger({node.node.name: node})), group))
    return None if found == group.size else found


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
def test_each_request_fits_only_nodes_of_its_mode(mode, family):
    limits, modes = FAMILIES[family]
    node = a_ledger(mode=mode, card_memory=8)

    found = room(node, new_group([a_member(0, limits=limits)]))

    assert (found is not Reason.MODE) == (mode in modes)
    assert isinstance(found, int) == (mode in modes)


def test_nodes_with_different_gpu_names_are_distinguished():
    exact, aliyun = an_exact_node("exact"), a_node("aliyun")
    nodes = Ledger({node.name: NodeLedger.empty(node) for node in (aliyun, exact)})
    snapshot = snapshot_of(nodes)

    for limits, expected in (({NVIDIA_GPU: 4}, [0, 2]), ({GPU_WHOLE: 4}, [2, 0])):
        group = new_group([a_member(0, limits=limits, **TIED)])
        assert list(feasibility_of(snapshot, group).capacity) == expected


@pytest.mark.parametrize(
    ("node", "found"),
    [
        ({}, 4),
        ({"taken": (1, 4, 7)}, 2),
        ({"taken": (1, 2, 3, 4, 5, 6, 7)}, Reason.GPUS),
        ({"unhealthy": (0,), "cordoned": (1, 2)}, 2),
        ({"unhealthy": (0, 1, 2), "cordoned": (3, 4, 5, 6)}, Reason.UNUSABLE),
        ({"taken": (1, 2, 3, 4, 5, 6), "cordoned": (0,)}, Reason.UNUSABLE),
        ({"taken": (1, 2, 3, 4, 5, 6, 7), "cordoned": (0,)}, Reason.GPUS),
        ({"taken": (1, 2, 3, 4, 5, 6), "cordoned": (1, 2)}, 1),
        ({"pods": 3}, 3),
        ({"pods": 0}, Reason.PODS),
        ({"cpu": 7_999}, 1),
        ({"cpu": 3_999}, Reason.CPU),
        ({"memory": 2 << 30}, 2),
        ({"memory": 1}, Reason.MEMORY),
        ({"resources": {"rdma/hca": 7}}, 3),
        ({"resources": {"rdma/hca": 1}}, Shortage("rdma/hca")),
        ({"resources": {}}, Shortage("rdma/hca")),
    ],
    ids=str,
)
def test_a_node_takes_so_many_workers(node, found):
    # Where other pods have some GPUs, one of them takes a pod slot.
    node = {"resources": {"rdma/hca": 8}, **node, "pods": node.get("pods", 110) + 1}
    group = new_group(workers(9, 2, limits={"cpu": 4, "memory": "1Gi", "rdma/hca": 2}))

    assert room(a_ledger(**node), group) == found


def test_a_pod_without_cpu_fits_where_cpu_is_overdrawn():
    node = replace(a_ledger(), cpu_free=-500, memory_free_bytes=-1)

    assert room(node, new_group([a_member(2)])) == 4
    assert shortage(node, new_group([a_member(2)])) is None
    assert room(node, new_group([a_member(2, limits={"cpu": "1m"})])) is Reason.CPU


def test_members_are_counted_as_the_most_demanding_of_them():
    members = [a_member(1, "a", limits={"cpu": 6}), a_member(1, "b", limits={"memory": "2Gi"})]

    node = a_ledger(cpu=12_000, memory=6 << 30)
    assert room(node, new_group(members)) == 2


def test_what_pods_hold_of_other_resources_is_not_free():
    worker = a_member(1, limits={"rdma/hca": 3, "ephemeral-storage": "1Ki"})
    node = a_ledger(resources={"rdma/hca": 8, "ephemeral-storage": 3 << 10})
    agent = Holding("o/agent", "agent", demand=Demand(others=(("ephemeral-storage", 2049),)))

    held = node.hold(worker.holding(exact(0)))
    assert room(node, new_group([worker])) == 2
    assert room(held, new_group([worker])) == 1
    assert room(held.hold_others([agent]), new_group([worker])) == Shortage("ephemeral-storage")
    assert held.release(worker.name) == node
    assert room(node, new_group(workers(2))) == 8


def test_what_a_device_class_offers_is_counted_only_on_nodes_that_have_some():
    ledger = Ledger(
        {
            name: NodeLedger.empty(a_node(name, resources=resources))
            for name, resources in (("a", {"rdma/hca": 1}), ("b", {}), ("c", {"rdma/hca": 0}))
        }
    )
    group = new_group(workers(2, 1, limits={"rdma/hca": 1}))

    snapshot = snapshot_of(ledger, class_resources=ClassResources(frozenset({"rdma/hca"})))
    assert feasibility_of(snapshot, group).capacity.tolist() == [1, 8, 8]
    assert feasibility_of_all(snapshot, group).capacity.tolist() == [0, 2, 2]
    assert feasibility_of(snapshot_of(ledger), group).capacity.tolist() == [1, 0, 0]


def test_each_member_may_request_other_resources():
    members = [a_member(1, "a", limits={"rdma/hca": 2}), a_member(1, "b", limits={"efa/nic": 1})]

    node = a_ledger(resources={"rdma/hca": 2, "efa/nic": 1})
    assert room(node, new_group(members)) == 1
    assert shortage(node, new_group(members)) is None
    assert shortage(node, new_group([*members, members[0]])) == Shortage("rdma/hca")


def test_a_host_port_is_taken_once():
    node = a_ledger()
    taken = node.hold(opening(22).holding(exact(0)))

    assert room(node, new_group([opening(22)])) == 8
    assert room(taken, new_group([opening(22)])) is Reason.PORTS
    assert room(node, new_group([opening(22), opening(22, "worker-1")])) == 1
    assert room(node, new_group([opening(22), opening(23, "worker-1")])) == 8


@pytest.mark.parametrize(
    ("node", "members", "reason"),
    [
        ({}, workers(8, 1, limits={"cpu": 12, "memory": "96Gi"}), None),
        ({"unschedulable": True}, workers(2), Reason.CORDONED),
        ({"taken": (0,)}, workers(8), Reason.GPUS),
        ({"unhealthy": (0,)}, workers(8), Reason.UNUSABLE),
        ({"taken": (0,), "unhealthy": (1,)}, workers(8), Reason.GPUS),
        ({"taken": (0,), "unhealthy": (1,)}, workers(7), Reason.UNUSABLE),
        ({"pods": 4}, workers(4), Reason.PODS),
        ({}, workers(8, 1, limits={"cpu": "12001m"}), Reason.CPU),
        ({}, workers(8, 1, limits={"memory": "97Gi"}), Reason.MEMORY),
        ({}, workers(8, 1, limits={"rdma/hca": 1}), Shortage("rdma/hca")),
        ({"resources": {"rdma/hca": 8}}, workers(8, 1, limits={"rdma/hca": 1}), None),
        ({}, [opening(22), opening(22, "worker-1")], Reason.PORTS),
        ({}, [opening(22), opening(23, "worker-1"), a_member(1, "worker-2")], None),
    ],
    ids=[
        *("fits", "closed", "gpus", "unhealthy", "taken, too", "both"),
        *("pods", "cpu", "memory", "rdma", "enough rdma", "ports", "other ports"),
    ],
)
def test_all_members_fit_one_node_or_a_reason_is_returned(node, members, reason):
    ledger = a_ledger(**node)

    assert shortage(ledger, new_group(members)) == reason


def test_nodes_are_counted_by_the_reason_why_they_take_none():
    nodes = [a_node("a"), a_node("b", unschedulable=True), a_node("c"), a_node("d", mode="mig")]
    found = feasibility_of(a_snapshot(*nodes), new_group([a_member(3)]))

    assert found.feasible.tolist() == [0, 2]
    assert found.capacity.tolist() == [2, 0, 2, 0]
    assert found.blocked == Counter({Reason.CORDONED: 1, Reason.MODE: 1})


def test_of_no_nodes_none_takes_any():
    for look in (feasibility_of, feasibility_of_all):
        found = look(a_snapshot(), new_group([a_member()]))
        assert (found.feasible.tolist(), found.blocked) == ([], Counter())


def test_shares_go_where_their_cards_have_room():
    node = a_ledger(GPUShare(0, mem=6, core=50), mode="core_mem", card_memory=8)

    assert room(node, new_group([a_member(0, limits={GPU_MEM: 1})])) is Reason.COMPUTE_TOO
    assert room(node, new_group([a_member(0, limits={GPU_MEM: 1, GPU_CORE: 5})])) == 1


@pytest.mark.parametrize("amount", [10**18, 10**30], ids=["exabyte", "beyond any number"])
def test_amounts_that_no_machine_has_are_compared_too(amount):
    member = a_member(limits={"cpu": str(amount), "memory": str(amount)})

    assert room(a_ledger(), new_group([member])) is Reason.CPU
    assert shortage(a_ledger(), new_group([member, member])) is Reason.CPU
    assert room(a_ledger(cpu=10**33, memory=10**33), new_group([a_member()])) == 8


@pytest.mark.parametrize("gpus", [2**63 - 1, 2**64 - 2], ids=["of one container", "of two"])
def test_gpus_that_no_machine_has_are_compared_too(gpus):
    member = a_member(gpus)

    assert room(a_ledger(), new_group([member])) is Reason.GPUS
    assert shortage(a_ledger(), new_group([member, member])) is Reason.GPUS


def test_nodes_with_the_same_value_of_a_label_have_the_same_number():
    places = {"a": {RACK: "x"}, "b": {}, "c": {RACK: "y"}, "d": {RACK: "x"}, "e": {RACK: ""}}
    a, b, c, d, e = labels(a_snapshot(*(a_node(n, labels=at) for n, at in places.items())), RACK)

    assert a == d
    assert b == 0
    assert len({a, b, c, e}) == 4


# ---- What is remembered.


@settings(max_examples=60)
@given(clusters(), st.lists(gangs(), min_size=2, max_size=4), st.data())
def test_cached_results_of_nodes_never_change_an_answer(snapshot, offered, data):
    for number, gang in enumerate(offered):
        members = [replace(one, name=f"{one.name}-{number}") for one in gang]
        names = sorted(snapshot.ledger.nodes)
        hidden = frozenset(data.draw(st.lists(st.sampled_from(names), max_size=2)))
        for seen in (snapshot, snapshot.without(hidden), snapshot.without_pods()):
            # The same ledgers, and nothing that was found of them before.
            fresh = snapshot_of(seen.ledger, preferences=seen.preferences)
            for look in (feasibility_of, feasibility_of_all):
                group = new_group(members)
                if group.gpus or look is feasibility_of:
                    mine, afresh = look(seen, group), look(fresh, group)
                    assert np.array_equal(mine.capacity, afresh.capacity)
                    assert mine.blocked == afresh.blocked
            assert plan(seen, members) == plan(fresh, members)
        found = plan(snapshot, members)
        if isinstance(found, Plan):
            pods = [replace(p, member=_renamed(p.member, number)) for p in found.placements]
            snapshot = replace(found, placements=tuple(pods)).applied_to(snapshot)


def _renamed(member: Member, number: int) -> Member:
    metadata = structs.replace(member.pod.metadata, uid=f"{member.name}-{number}")
    return replace(member, pod=structs.replace(member.pod, metadata=metadata))


_selectors = st.dictionaries(st.sampled_from("abc"), st.sampled_from("xy"), max_size=2)
_requirements = st.builds(
    lambda key, operator, values: {"key": key, "operator": operator, "values": values},
    st.sampled_from("abc"),
    st.sampled_from(("In", "NotIn", "Exists", "Gt")),
    st.lists(st.sampled_from(("x", "y", "1")), max_size=2),
)
_fields = st.builds(
    lambda node: {"key": NODE_NAME_FIELD, "operator": "In", "values": [node]},
    st.sampled_from(("node-0", "node-2")),
)
_terms = st.fixed_dictionaries(
    {"matchExpressions": st.lists(_requirements, max_size=2)},
    optional={"matchFields": st.lists(_fields, max_size=1)},
)
_tolerations = st.lists(
    st.builds(lambda key: {"key": key, "operator": "Exists"}, st.sampled_from("ab")), max_size=1
)


@given(
    st.lists(
        st.tuples(
            _selectors,
            st.sampled_from(((), (Taint("a", "", "NoSchedule"),))),
            st.booleans(),
            st.sampled_from(({}, {"mode": "default"}, {"mode": "default", "resources": {}})),
        ),
        min_size=1,
        max_size=5,
    ),
    st.lists(st.tuples(_selectors, st.lists(_terms, max_size=2), _tolerations), max_size=4),
)
def test_equal_nodes_are_filtered_once_with_the_result_of_each(
    nodes: list[Any], pods: list[Any]
) -> None:
    snapshot = a_snapshot(
        *(
            a_node(f"node-{i}", labels=labels, taints=taints, unschedulable=shut, **kind)
            for i, (labels, taints, shut, kind) in enumerate(nodes)
        )
    )
    for selector, terms, tolerations in pods:
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        affinity = {"nodeAffinity": required} if terms else None
        spec = {"nodeSelector": selector, "affinity": affinity, "tolerations": tolerations}
        for member in (a_member(1, "w", **spec), a_gated_member(1, "w", **spec)):
            found = excluded(snapshot, new_group([member]))

            expected = [filter_node(node, member) is not None for node in snapshot.nodes]
            assert found.tolist() == expected


def test_only_nodes_that_offer_gpus_are_counted() -> None:
    nodes = a_node("a", mode="default"), a_node("b", mode="default", resources={})

    found = excluded(a_snapshot(*nodes), new_group([a_gated_member()]))

    assert found.tolist() == [False, True]
