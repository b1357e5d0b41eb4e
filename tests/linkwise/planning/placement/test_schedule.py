from dataclasses import replace
from itertools import combinations, product

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.builders import (
    a_machine,
    a_member,
    a_node,
    a_pcie_machine,
    a_snapshot,
    an_nvswitch_machine,
    bridged_pairs,
    workers,
)
from support.strategies import RACK, clusters, gangs

from linkwise.cluster.account.ledger import Ledger
from linkwise.cluster.account.node_ledger import NodeLedger
from linkwise.cluster.allocations.gpus import GPUShare
from linkwise.cluster.gang import Link
from linkwise.cluster.keys import COMPUTE_CLASS, GPU_MEM, MODEL_SERIES, NVIDIA_GPU
from linkwise.cluster.mode import PackingStrategy
from linkwise.cluster.nodes.node import MachineSource
from linkwise.cluster.nodes.node_reader import uniform_machine
from linkwise.cluster.objects.selector import node_matches, tolerates
from linkwise.planning.placement.bandwidth import Bandwidth
from linkwise.planning.placement.options import PlanOptions
from linkwise.planning.placement.pods.member import Member
from linkwise.planning.placement.result import Plan, Refusal
from linkwise.planning.placement.schedule import plan
from linkwise.planning.placement.state.snapshot import Snapshot
from linkwise.topology.machine import mask_of

quick = settings(max_examples=50)
links = st.sampled_from(Link)


def planned(snapshot: Snapshot, members: list[Member], link: Link = Link.BEST) -> Plan:
    found = plan(snapshot, members, PlanOptions(link))
    assert isinstance(found, Plan), found
    return found


def refused(snapshot: Snapshot, members: list[Member], link: Link = Link.BEST) -> str:
    found = plan(snapshot, members, PlanOptions(link))
    assert isinstance(found, Refusal), found
    return found.reason


def may_use(node: NodeLedger, member: Member) -> bool:
    facts, spec = node.node, member.pod.spec
    return (
        facts.ready
        and not facts.unschedulable
        and all(tolerates(spec.tolerations, taint) for taint in facts.taints)
        and node_matches(spec, facts.name, facts.labels)
    )


def fits_together(node: NodeLedger, members: list[Member]) -> bool:
    """Return whether all go to one node: written from the rules, for members with equal ports."""
    return (
        all(may_use(node, member) for member in members)
        and node.free_mask.bit_count() >= sum(member.gpus for member in members)
        and node.cpu_free >= sum(member.demand.cpu for member in members)
        and node.memory_free_bytes >= sum(member.demand.memory for member in members)
        and node.pods_free >= len(members)
        and (len(members) == 1 or not members[0].demand.ports)
    )


@quick
@given(clusters(), gangs(), links)
def test_a_plan_takes_exactly_its_gpus_and_nothing_twice(snapshot, members, link):
    found = plan(snapshot, members, PlanOptions(link))
    if isinstance(found, Refusal):
        assert found.reason
        return

    after = found.applied_to(snapshot)

    assert [p.member for p in found.placements] == members
    assert [len(p.gpus) for p in found.placements] == [member.gpus for member in members]
    for name, node in after.ledger.nodes.items():
        here = [p for p in found.placements if p.node == name]
        before = snapshot.ledger.nodes[name]
        assert before.free_mask & ~node.free_mask == mask_of(
            [i for p in here for i in p.gpus.indices]
        )
        assert all(may_use(before, p.member) for p in here)
        assert not here or min(node.cpu_free, node.memory_free_bytes, node.pods_free) >= 0
        assert sum(len(p.member.demand.ports) for p in here) <= 1


@quick
@given(clusters(), gangs(), links, st.randoms(use_true_random=False))
def test_a_plan_is_the_same_again_and_in_any_order_of_nodes(snapshot, members, link, random):
    nodes = list(snapshot.ledger.nodes.items())
    random.shuffle(nodes)

    again = plan(replace(snapshot, ledger=Ledger(dict(nodes))), members, PlanOptions(link))

    assert again == plan(snapshot, members, PlanOptions(link))


@quick
@given(clusters(), gangs())
def test_one_node_takes_all_whenever_one_can_and_is_the_fastest(snapshot, members):
    able = [node for node in snapshot.nodes if fits_together(node, members)]
    found = plan(snapshot, members)

    if not able:
        assert isinstance(found, Refusal) or len(found.gpus) > 1
        return
    assert isinstance(found, Plan)
    (name,) = found.gpus
    assert name in {node.node.name for node in able}
    if snapshot.ledger.nodes[name].node.machine_known and sum(m.gpus for m in members) > 1:
        each_alone = [plan(snapshot.only(node.node.name), members).bandwidth.value for node in able]
        assert found.bandwidth.value >= max(speed or 0 for speed in each_alone) * 0.99


@quick
@given(clusters(most=3), gangs())
def test_a_gang_is_refused_only_when_its_members_fit_nowhere_together(snapshot, members):
    assume(len({member.gpus for member in members}) == 1 and len(members) <= 4)
    found = plan(snapshot, members)
    if isinstance(found, Plan):
        return
    indices = range(len(members))
    fits = {
        (node.node.name, here): fits_together(node, [members[i] for i in here])
        for node in snapshot.nodes
        for size in range(1, len(members) + 1)
        for here in combinations(indices, size)
    }
    names = [node.node.name for node in snapshot.nodes]
    for chosen in product(names, repeat=len(members)):
        seated = {(n, tuple(i for i in indices if chosen[i] == n)) for n in chosen}
        assert not all(fits[assignment] for assignment in seated)


@quick
@given(clusters(), gangs())
def test_with_nvlink_demanded_every_set_is_connected_by_it_alone(snapshot, members):
    found = plan(snapshot, members, PlanOptions(Link.NVLINK))
    if isinstance(found, Refusal):
        return
    for placement in found.placements:
        assert snapshot.tables[placement.node].linked[mask_of(placement.gpus.indices)]
    if len(found.gpus) == 1:
        ((node, gpus),) = found.gpus.items()
        assert snapshot.tables[node].linked[mask_of(gpus)]


@quick
@given(clusters(), gangs())
def test_with_one_node_demanded_one_node_takes_all(snapshot, members):
    found = plan(snapshot, members, PlanOptions(Link.ONE_NODE))

    assert isinstance(found, Refusal) or len(found.gpus) == 1


def test_two_workers_of_four_get_a_half_of_a_dgx_1_each():
    found = planned(a_snapshot(a_node()), workers(2, 4))

    assert [p.gpus.indices for p in found.placements] == [(0, 1, 2, 3), (4, 5, 6, 7)]
    assert found.exact


def test_sixteen_single_gpus_are_spread_evenly_over_two_nodes():
    found = planned(a_snapshot(a_node("a"), a_node("b"), a_node("c")), workers(16))

    assert found.gpus == {"a": tuple(range(8)), "b": tuple(range(8))}
    assert [p.node for p in found.placements] == ["a"] * 8 + ["b"] * 8
    assert found.bandwidth.nic_unknown


def test_nine_single_gpus_are_split_into_five_and_four():
    found = planned(a_snapshot(a_node("a"), a_node("b")), workers(9))

    assert sorted(len(gpus) for gpus in found.gpus.values()) == [4, 5]


def test_three_pairs_are_found_where_odd_sets_are_free():
    # Five free GPUs take two workers of two, and no part of the third.
    snapshot = a_snapshot(a_node("a"), a_node("b"), taken={"a": (0, 1, 2), "b": (1, 3, 4, 5, 6)})

    found = planned(snapshot, workers(3, 2))

    assert {node: len(gpus) for node, gpus in found.gpus.items()} == {"a": 4, "b": 2}


def test_unequal_members_share_one_node():
    members = [a_member(1, "w-0"), a_member(4, "w-1"), a_member(2, "w-2")]

    found = planned(a_snapshot(a_node(), taken={"node-0": (7,)}), members)

    assert [len(p.gpus) for p in found.placements] == [1, 4, 2]
    assert found.gpus == {"node-0": (0, 1, 2, 3, 4, 5, 6)}


def test_unequal_members_are_placed_over_nodes_with_a_bandwidth():
    members = [a_member(2, "w-0"), a_member(8, "w-1")]

    found = planned(a_snapshot(a_node("a"), a_node("b"), nic_bandwidth=10.0), members)

    assert [p.node for p in found.placements] == ["b", "a"]
    # The slowest link is that of the NICs; a ring of 10 GPUs sends 2 · 9/10 of the data over it.
    assert found.bandwidth == Bandwidth(5.555556, nodes=2)
    assert not found.exact


def test_unequal_members_that_nvlink_must_join_find_a_split_if_there_is_one():
    snapshot = a_snapshot(a_node(), taken={"node-0": (4, 5, 7)})

    found = planned(snapshot, [a_member(2, "w-0"), a_member(3, "w-1")], Link.NVLINK)

    assert found.gpus == {"node-0": (0, 1, 2, 3, 6)}
    assert [p.gpus.indices for p in found.placements] == [(2, 6), (0, 1, 3)]


def test_unequal_members_that_only_the_host_joins_on_one_node_wait_for_nvlink():
    members = [a_member(2, "w-0"), a_member(1, "w-1")]
    snapshot = a_snapshot(a_node(machine=bridged_pairs()))

    assert "NVLink alone does not connect them there" in refused(snapshot, members, Link.NVLINK)
    assert planned(snapshot, members)


def test_a_launcher_that_is_a_worker_too_may_ask_for_other_cpu():
    launcher = a_member(1, "launcher", limits={"cpu": "3"})
    members = [launcher, *workers(3, limits={"cpu": "1"})]
    narrow = [a_node(name, cpu=2000) for name in ("a", "b")]

    # Three CPUs fit on the wide node only; counted as such, no worker would go to the others.
    found = planned(a_snapshot(*narrow, a_node("wide", cpu=3000)), members)

    assert found.placements[0].node == "wide"
    assert sorted(p.node for p in found.placements[1:]) == ["a", "a", "b"]


def test_members_that_must_go_to_different_nodes_are_placed_all_the_same():
    launcher = a_member(1, "launcher", nodeSelector={RACK: "a"})
    worker = a_member(1, "worker-0", nodeSelector={RACK: "b"})
    nodes = [a_node(rack, labels={RACK: rack}) for rack in ("a", "b")]

    found = planned(a_snapshot(*nodes), [launcher, worker])

    assert [p.node for p in found.placements] == ["a", "b"]


def test_a_host_port_of_one_member_keeps_the_others_on_its_node():
    port = {"name": "c", "resources": {"limits": {"aliyun.com/gpu": 1}}}
    launcher = a_member(1, "l", containers=[{**port, "ports": [{"hostPort": 2222}]}])

    found = planned(a_snapshot(a_node("a"), a_node("b")), [launcher, *workers(3)])

    assert len(found.gpus) == 1


def test_members_with_the_same_host_port_go_to_different_nodes():
    members = workers(
        2,
        hostNetwork=True,
        containers=[
            {
                "name": "c",
                "resources": {"limits": {"aliyun.com/gpu": 1}},
                "ports": [{"containerPort": 22}],
            }
        ],
    )

    found = planned(a_snapshot(a_node("a"), a_node("b")), members)

    assert sorted(found.gpus) == ["a", "b"]
    assert refused(a_snapshot(a_node("a")), members).endswith(
        "1 of 2 workers fit now, on 1 of 1 node; two that want the same host port need two nodes"
    )


def test_a_gang_larger_than_the_cluster_is_refused_with_numbers():
    snapshot = a_snapshot(a_node("a"), a_node("b", unschedulable=True))

    assert refused(snapshot, workers(5, 2)) == (
        "needs 10 GPUs as 5 × 2 GPUs; 4 of 5 workers fit now, on 1 of 2 nodes; "
        "on the others: marked unschedulable (1)"
    )


def test_pairs_without_a_link_wait_for_nvlink_and_then_fit():
    node = a_node(machine=bridged_pairs())
    members = workers(2, 2)

    waiting = refused(
        a_snapshot(
            node,
            a_node("b", machine=bridged_pairs()),
            taken={"node-0": (0, 2, 4, 6), "b": (1, 2, 3, 4, 5, 6, 7)},
        ),
        members,
        Link.NVLINK,
    )
    assert "no free set connected by NVLink alone" in waiting

    freed = a_snapshot(
        node,
        a_node("b", machine=bridged_pairs()),
        taken={"node-0": (0, 2, 4), "b": (2, 3, 4, 5, 6, 7)},
    )
    assert planned(freed, members, Link.NVLINK).gpus == {"b": (0, 1), "node-0": (6, 7)}


def test_gang_whose_node_lacks_nvlink_between_all_is_placed_over_nodes():
    nodes = [a_node(name, machine=bridged_pairs()) for name in ("a", "b")]

    found = planned(a_snapshot(*nodes), workers(2, 2), Link.NVLINK)
    assert [len(gpus) for gpus in found.gpus.values()] == [2, 2]

    alone = refused(a_snapshot(nodes[0]), workers(2, 2), Link.NVLINK)
    assert alone.startswith(
        "needs 4 GPUs as 2 × 2 GPUs, each worker's (on one node all) connected by NVLink alone; "
        "1 of 2 workers fit now"
    )


def test_nodes_with_too_few_linked_sets_are_joined_by_more_nodes():
    # Each of the three has four free GPUs, of which one pair is bridged.
    nodes = [a_node(name, machine=bridged_pairs()) for name in "abc"]
    snapshot = a_snapshot(*nodes, taken=dict.fromkeys("abc", (0, 2, 4, 5)))

    found = planned(snapshot, workers(3, 2), Link.NVLINK)

    assert found.gpus == dict.fromkeys("abc", (6, 7))


def test_one_node_or_wait_says_which_node_comes_nearest():
    snapshot = a_snapshot(a_node("a"), a_node("b"), taken={"a": (0, 1), "b": (5,)})

    assert refused(snapshot, workers(4, 2), Link.ONE_NODE) == (
        "needs 8 GPUs on one node; the freest suitable node has 7; "
        "of 2 nodes: too few free GPUs (2)"
    )
    assert planned(a_snapshot(a_node("a")), workers(4, 2), Link.ONE_NODE)


def test_a_single_pod_takes_the_fastest_set_of_the_fastest_node():
    pcie = a_node("a", a_pcie_machine(8, socket=4))
    snapshot = a_snapshot(pcie, a_node("b"), taken={"b": (1, 4, 5)})

    found = planned(snapshot, [a_member(2)])

    assert found.gpus in ({"b": (0, 3)}, {"b": (2, 3)}, {"b": (6, 7)})
    assert found.bandwidth.value == 40.0


def test_a_single_gpu_has_no_bandwidth():
    assert planned(a_snapshot(a_node()), [a_member()]).bandwidth.value is None


def test_on_an_unknown_machine_a_plan_has_no_bandwidth():
    node = a_node(machine=uniform_machine(4), machine_source=MachineSource.UNKNOWN)

    assert planned(a_snapshot(node), workers(2, 2)).bandwidth.value is None


def test_inexact_bandwidth_is_marked():
    mesh = a_machine(10, {(i, j): 1 for j in range(10) for i in range(j)})

    found = planned(a_snapshot(a_node(machine=mesh)), workers(2, 3))

    assert not found.exact


def test_the_nearest_domain_with_room_is_named():
    nodes = [a_node(f"{rack}{i}", labels={RACK: rack}) for rack in "ab" for i in range(2)]
    snapshot = a_snapshot(*nodes, taken={"a0": (0,)}, domains=(RACK,))

    assert planned(snapshot, workers(16)).domain == f"{RACK}=b"
    assert planned(snapshot, workers(24)).domain is None


def test_unaccounted_nodes_are_refused():
    snapshot = a_snapshot(a_node("a"))
    node = replace(snapshot.ledger.nodes["a"], unaccounted="who has what is not known")

    reason = refused(replace(snapshot, ledger=Ledger({"a": node})), [a_member()])

    assert "GPUs in use without a record" in reason


def test_cluster_without_nodes_is_the_reason():
    assert refused(a_snapshot(), [a_member(2)]) == "needs 2 GPUs on one node; there are no nodes"


def test_shares_are_placed_all_or_nothing():
    node = a_node(machine=uniform_machine(2), mode="share", card_memory=16)
    members = workers(3, 0, limits={GPU_MEM: 10})

    assert refused(a_snapshot(node), members) == (
        "needs 10 GiB of one card; 2 of 3 members would fit; "
        "of 1 node: no card with enough free memory and compute (1)"
    )
    assert planned(a_snapshot(node), members[:2]).gpus == {"node-0": (0, 1)}


def test_shares_on_one_node_or_wait():
    nodes = [
        a_node(name, machine=uniform_machine(n), mode="share", card_memory=16)
        for name, n in (("a", 1), ("b", 2), ("c", 2))
    ]
    members = workers(2, 0, limits={GPU_MEM: 10})
    shares = {"a": [GPUShare(0, mem=2)], "b": [GPUShare(0, mem=2)]}

    best_fit = planned(a_snapshot(*nodes, shares=shares), members)
    assert {p.node for p in best_fit.placements} == {"a", "b"}

    together = planned(a_snapshot(*nodes, shares=shares), members, Link.ONE_NODE)
    assert {p.node for p in together.placements} == {"b"}

    reason = refused(
        a_snapshot(*nodes, shares=shares), workers(3, 0, limits={GPU_MEM: 10}), Link.ONE_NODE
    )
    assert reason == (
        "3 members that need 10 GiB of one card, all on one node: no node takes all of them"
    )


def test_gpus_by_count_are_only_counted():
    nodes = [a_node("a", mode="default"), a_node("b", mode="default")]

    found = planned(a_snapshot(*nodes), workers(3, 0, limits={NVIDIA_GPU: 4}))

    assert [(p.node, p.gpus.shares) for p in found.placements] == [("a", ()), ("a", ()), ("b", ())]
    after = found.applied_to(a_snapshot(*nodes))
    assert [node.counted_free(NVIDIA_GPU) for node in after.nodes] == [0, 4]


def test_gpus_by_count_may_be_spread():
    nodes = [a_node("a", mode="default"), a_node("b", mode="default")]

    found = planned(
        a_snapshot(*nodes, placement=PackingStrategy.SPREAD), workers(2, 0, limits={NVIDIA_GPU: 4})
    )

    assert [p.node for p in found.placements] == ["a", "b"]


def test_a_label_that_no_node_has_is_named_with_the_policys_key():
    pod = a_member(
        0,
        limits={NVIDIA_GPU: 1},
        labels={COMPUTE_CLASS: "gpu", MODEL_SERIES: "T4"},
        nodeSelector={MODEL_SERIES: "T4"},
    )

    reason = refused(a_snapshot(a_node("a", mode="default")), [pod])

    assert f"no node has the label {MODEL_SERIES}" in reason
    assert "set affinity.platform: acs in the policy" in reason
    labelled = a_node("a", mode="default", labels={MODEL_SERIES: "A10"})
    assert "platform" not in refused(a_snapshot(labelled), [pod])


def test_a_large_gang_behind_switches_is_planned():
    nodes = [a_node(f"n{i}", an_nvswitch_machine(8, 12)) for i in range(40)]

    found = planned(a_snapshot(*nodes), workers(128, 2))

    assert len(found.gpus) == 32
    assert found.exact


# ---- Nodes that are closed to most pods.


@pytest.mark.parametrize("closed", [{"unschedulable": True}, {"ready": False}])
@pytest.mark.parametrize(("members", "nodes"), [(1, {"open"}), (3, {"closed", "open"})])
def test_a_pod_that_tolerates_everything_goes_to_an_open_node_if_one_fits(closed, members, nodes):
    """The closed node has fewer free GPUs, which would be better for a pod alone."""
    snapshot = a_snapshot(
        a_node("closed", **closed), a_node("open"), taken={"closed": (0, 1, 2, 3)}
    )

    found = plan(snapshot, workers(members, 4, tolerations=[{"operator": "Exists"}]))

    assert set(found.gpus) == nodes
    assert isinstance(plan(snapshot, workers(3, 4)), Refusal)
