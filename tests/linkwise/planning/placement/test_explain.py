from dataclasses import replace

import pytest
from support.builders import a_machine, a_member, a_node, a_snapshot, workers

from linkwise.cluster.gang import Link
from linkwise.cluster.keys import GPU_MEM
from linkwise.cluster.nodes.node import MachineSource
from linkwise.cluster.nodes.node_reader import uniform_machine
from linkwise.cluster.requests.class_resources import ClassResources
from linkwise.planning.placement.explain import MAX_EXPLAINED, PlanExplanation, explain_plan
from linkwise.planning.placement.options import PlanOptions
from linkwise.planning.placement.result import Plan
from linkwise.planning.placement.schedule import plan
from linkwise.planning.placement.state.snapshot import Snapshot

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_OF_TEAM = {"matchLabels": {"team": "a"}}


def explained(snapshot: Snapshot, members, **options) -> PlanExplanation:
    found = plan(snapshot, members, **options)
    assert isinstance(found, Plan), found
    return explain_plan(snapshot, found)


def test_explanation_names_the_only_node_or_the_best_node():
    nodes = [a_node("a"), a_node("b")]

    assert explained(a_snapshot(nodes[0]), [a_member()]).nodes == ("only a takes it now")
    assert explained(a_snapshot(*nodes), workers(2)).nodes == (
        "of the 2 nodes that take all 2 now, a is the best"
    )


def test_several_nodes_are_the_fewest_in_the_nearest_domain():
    nodes = [a_node(n, labels={"rack": "r"}) for n in "ab"]

    assert explained(a_snapshot(*nodes, domains=("rack",)), workers(9)).nodes == (
        "no single node takes all 9; 2 nodes is the fewest, all with rack=r; the best such set"
    )


def test_plan_that_is_not_exact_is_not_called_best():
    snapshot = a_snapshot(a_node("a"), a_node("b"))
    found = plan(snapshot, workers(9))

    assert "perhaps not the best" in explain_plan(snapshot, replace(found, exact=False)).nodes


def test_members_placed_in_turn_claim_no_fewest_nodes():
    nodes = [a_node(n, a_machine(1), "share", card_memory=8) for n in "ab"]

    assert explained(a_snapshot(*nodes), workers(2, 0, limits={GPU_MEM: 8})).nodes == (
        "one after another, each of the 2 on the node that was best for it then"
    )


def test_the_gpus_of_each_node_are_explained():
    found = explained(a_snapshot(a_node(), taken={"node-0": (2, 3)}), workers(4))

    assert found.gpus["node-0"].chosen.gpus == (4, 5, 6, 7)
    assert found.gpus["node-0"].index_order.gpus == (0, 1, 4, 5)


def test_shares_and_too_many_nodes_are_not_explained_gpu_by_gpu():
    node = a_node(machine=a_machine(1), mode="share", card_memory=8)
    assert explained(a_snapshot(node), [a_member(0, limits={GPU_MEM: 8})]).gpus == {}

    many = [a_node(f"n{i:02}", a_machine(2)) for i in range(MAX_EXPLAINED + 2)]
    assert len(explained(a_snapshot(*many), workers(len(many), 2)).gpus) == MAX_EXPLAINED


def test_sets_that_another_rule_chose_are_not_explained_by_the_mode():
    # With unequal members each set is chosen on its own.
    members = [a_member(8, "w0"), a_member(4, "w1"), a_member(1, "w2")]

    found = explained(a_snapshot(a_node("a"), a_node("b")), members)

    assert "a" in found.gpus


@pytest.mark.parametrize(
    ("spec", "note"),
    [
        (
            {"affinity": {"podAntiAffinity": {_REQUIRED: [{"namespaceSelector": _OF_TEAM}]}}},
            "pod anti-affinity that selects namespaces by labels",
        ),
        (
            {"resourceClaims": [{"name": "nic", "resourceClaimName": "nic"}]},
            "devices of other drivers",
        ),
        ({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}, "volumes"),
    ],
)
def test_what_only_kube_scheduler_judges_is_named(spec, note):
    assert explained(a_snapshot(a_node()), [a_member(**spec)]).notes == (
        f"left to kube-scheduler: {note}",
    )


def test_preferences_that_do_not_count_are_named():
    spread = {"topologySpreadConstraints": [{"whenUnsatisfiable": "ScheduleAnyway"}]}
    affinity = {kind: {_PREFERRED: [{}]} for kind in ("podAffinity", "podAntiAffinity")}
    snapshot = a_snapshot(a_node())
    preferred = "topology spread that is preferred (ScheduleAnyway)"

    assert explained(snapshot, [a_member(**spread)]).notes == (f"after the bandwidth: {preferred}",)
    assert explained(snapshot, workers(2, **spread, affinity=affinity)).notes == (
        "not counted: pod affinity that is preferred, pod anti-affinity that is preferred, "
        f"{preferred}",
    )


def test_resources_for_which_kube_scheduler_makes_a_claim_are_named():
    member = a_member(limits={"rdma/hca": 1})
    offered = ClassResources(frozenset({"rdma/hca"}))
    by_class = replace(a_snapshot(a_node()), class_resources=offered)
    listed = a_snapshot(a_node(resources={"rdma/hca": 1}))

    assert explained(by_class, [member]).notes == ("left to kube-scheduler: rdma/hca",)
    assert explained(replace(listed, class_resources=offered), [member]).notes == ()


@pytest.mark.parametrize(
    ("source", "origin"),
    [
        (MachineSource.FEATURE_DISCOVERY, "identified by labels of GPU feature discovery"),
        (
            MachineSource.CATALOGUE,
            "identified by the product and number of GPUs in ResourceSlices",
        ),
        (
            MachineSource.RESOURCE_SLICES,
            "those of PCIe and NUMA in ResourceSlices: NVLinks are unknown",
        ),
    ],
)
def test_inferred_links_are_named(source, origin):
    inferred = [a_node(n, machine_source=source) for n in "ab"]

    assert explained(a_snapshot(*inferred), workers(2, 8)).notes == (
        f"the GPU links of a, b are {origin}",
        "the slowest link is PCIe out of a, which has 8 of the job's GPUs",
        "the bandwidth of the nodes' NICs is unknown, so it is not counted",
    )


def test_unknown_facts_are_named():
    unknown = [
        a_node(n, uniform_machine(4), machine_source=MachineSource.UNKNOWN)
        for n in ("a", "b", "c", "d")
    ]

    assert explained(a_snapshot(*unknown), workers(16)).notes == (
        "the GPU links of a, b, c and others are unknown: all GPUs count as equal",
    )
    assert explained(a_snapshot(a_node()), workers(2), options=PlanOptions(Link.NVLINK)).notes == ()
