import json

import pytest
from support.builders import a_held_pod
from support.dra import a_claim, a_device, a_rule, a_slice

from linkwise.cluster.keys import EXCLUDED_NODES, REFUSED_MACHINES, UNFENCED_NODES
from linkwise.cluster.mode import NodeMode
from linkwise.cluster.nodes.node import MachineSource
from linkwise.cluster.objects.metadata import Metadata
from linkwise.cluster.scorer_lease import ScorerLease
from linkwise.manifest.value import InputError
from linkwise.policy.document import parse_policy
from linkwise.policy.snapshot import PolicySnapshot
from linkwise.views.files.cluster_file import collect_objects
from linkwise.views.files.source import read_objects


def a_node(name="n", *, labels=None, allocatable=None):
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {"ack.node.gpu.schedule": "topology", **(labels or {})},
        },
        "spec": {"taints": None},
        "status": {"allocatable": allocatable or {"aliyun.com/gpu": "2", "cpu": "8"}},
    }


def a_config_map(name, data, *, namespace="kube-system", labels=None):
    metadata = {"name": name, "namespace": namespace, "labels": labels or {}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


@pytest.fixture
def read(write):
    def read_objects_of(*objects, policy=""):
        listed = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        path = str(write("cluster.json", json.dumps(listed, indent=1)))
        return collect_objects(read_objects(path), path).build(PolicySnapshot(parse_policy(policy)))

    return read_objects_of


def test_nodes_and_the_gpus_of_their_pods_are_read(read):
    record = '{"v":1,"node":"n","gpus":[{"i":1}],"class":"c","plan":"p"}'
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "a", "uid": "u", "annotations": {"linkwise.dev/allocation": record}},
        "spec": {
            "nodeName": "n",
            "containers": [{"name": "c", "resources": {"limits": {"aliyun.com/gpu": 1}}}],
        },
    }

    cluster = read(
        a_node(), pod, {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}}
    )

    (node,) = cluster.nodes
    assert (node.mode, node.cpu, node.machine_known) == (NodeMode.TOPOLOGY, 8000, False)
    assert cluster.ledger.nodes["n"].unaccounted is None
    assert cluster.ledger.nodes["n"].free_mask == 0b01
    assert [pod.metadata.name for pod in cluster.pods] == ["a"]


def test_published_topology_gives_the_machine(read):
    data = {
        "devices": '{"0": "Healthy", "1": "Unhealthy"}',
        "linkType": '[["N-A", "NV2"], ["NV2", "N-A"]]',
        "bandwidth": "[[0, 40], [40, 0]]",
    }
    labels = {"ack.node.gpu.schedule": "topology", "nodename": "n"}

    (node,) = read(a_node(), a_config_map("topo-n", data, labels=labels)).nodes

    assert node.machine_known
    assert node.machine.links == ((0, 2), (2, 0))
    assert [card.healthy for card in node.cards] == [True, False]


def test_unreadable_parts_of_published_topology_are_warnings(read):
    labels = {"ack.node.gpu.schedule": "topology", "nodename": "n"}
    data = {"devices": '{"0": "Unhealthy", "1": "Healthy"}'}

    cluster = read(a_node(), a_config_map("topo-n", data, labels=labels))

    assert not cluster.nodes[0].machine_known
    assert cluster.nodes[0].usable_mask == 0b10
    assert cluster.warnings == ("node n: published topology: linkType: missing",)


def test_cards_marked_unhealthy_by_config_map_are_unusable(read):
    cluster = read(a_node(), a_config_map("unhealthy-gpu-n", {"gpus": "0, x"}))

    assert cluster.nodes[0].usable_mask == 0b10
    assert cluster.warnings[0].startswith("node n: ConfigMap unhealthy-gpu-n: 'x'")


def test_the_policy_maps_nodes_to_machines_of_the_catalogue(read):
    policy = "machines: [{nodeLabels: {pool: t4}, machine: t4x4, constants: {pcie: 20}}]"
    mapped = a_node(labels={"pool": "t4"}, allocatable={"aliyun.com/gpu": "4"})

    first, second = read(mapped, a_node("other"), policy=policy).nodes

    assert first.machine_known
    assert first.machine.n == 4
    assert first.machine.constants.pcie == 20
    assert not second.machine_known


def test_policy_sets_placement_of_nodes_without_label(read):
    labelled = a_node("labelled", labels={"ack.node.gpu.placement": "binpack"})
    misspelt = a_node("misspelt", labels={"ack.node.gpu.placement": "spraed"})

    cluster = read(a_node(), labelled, misspelt, policy="placement: {strategy: spread}")

    assert [node.placement for node in cluster.nodes] == ["binpack", "spread", "spread"]
    assert cluster.warnings == (
        "node misspelt: ack.node.gpu.placement=spraed is neither binpack nor spread: "
        "spread is taken",
    )


def test_a_machine_that_the_catalogue_does_not_have_is_refused(read):
    policy = "machines: [{nodeLabels: {pool: t4}, machine: t4x5}]"

    with pytest.raises(InputError, match="the policy's machines: no machine 't4x5'"):
        read(a_node(labels={"pool": "t4"}), policy=policy)


def test_annotations_of_other_schedulers_count_when_the_policy_says_so(read):
    node = a_node(
        labels={"ack.node.gpu.schedule": "share"},
        allocatable={"aliyun.com/gpu-mem": "30", "aliyun.com/gpu-count": "2"},
    )
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "a",
            "annotations": {"ALIYUN_COM_GPU_MEM_IDX": "1", "ALIYUN_COM_GPU_MEM_POD": "5"},
        },
        "spec": {
            "nodeName": "n",
            "containers": [{"name": "c", "resources": {"limits": {"aliyun.com/gpu-mem": 5}}}],
        },
    }

    assert read(node, pod).ledger.nodes["n"].unaccounted
    ledger = read(node, pod, policy="migration: {gpushare: true}").ledger.nodes["n"]
    assert (ledger.unaccounted, ledger.memory_free(1)) == (None, 10)


@pytest.mark.parametrize(
    ("node", "complaint"),
    [
        (a_node(allocatable={"cpu": "many"}), "status.allocatable[cpu]: 'many' is no quantity"),
        (a_node() | {"spec": []}, "spec: expected `object`, got `array`; Kubernetes refuses"),
        (a_node(allocatable={"cpu": 4, "pods": True}), "status.allocatable[pods]: expected `int"),
    ],
)
def test_invalid_node_is_an_error_with_line(read, node, complaint):
    with pytest.raises(InputError, match=r"cluster\.json:\d+: ") as refused:
        read(node)

    assert complaint in str(refused.value)


def test_the_same_node_twice_is_refused(read):
    with pytest.raises(InputError, match="node n is already defined at"):
        read(a_node(), a_node())


def a_lease(**annotations):
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": "linkwise-scorer",
            "namespace": "linkwise-system",
            "annotations": annotations,
        },
    }


def test_machines_that_the_scorer_refuses_are_not_used(read):
    why = "its agent published another machine 3 times in 10 minutes"
    cluster = read(a_node(), a_lease(**{REFUSED_MACHINES: json.dumps({"n": why})}))

    assert cluster.ledger.nodes["n"].unaccounted == why


def test_nodes_that_claims_of_others_may_use_are_warned_of(read):
    cluster = read(a_node(), a_lease(**{UNFENCED_NODES: '{"n": "no rule", "gone": "no rule"}'}))

    assert cluster.warnings == ("node n: claims of others may get its GPUs: no rule",)


def test_nodes_that_the_scorer_excludes_for_a_unit_are_read(read):
    cluster = read(a_node(), a_lease(**{EXCLUDED_NODES: '{"0a": {"n": 1767225600.0}}'}))

    assert cluster.excluded == {"0a": {"n": 1767225600.0}}


@pytest.mark.parametrize("team", ["a", None], ids=["there", "not in the file"])
def test_namespaces_that_rules_select_by_labels_are_named(read, team):
    term = {
        "topologyKey": "zone",
        "labelSelector": {},
        "namespaceSelector": {"matchLabels": {"team": "a"}},
    }
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    waiting = a_held_pod(1, "w", affinity={"podAffinity": required})
    running = a_held_pod(0, "r", affinity={"podAntiAffinity": required}, nodeName="n")
    metadata = {"name": "vision", "labels": {"team": team}}
    namespaces = [{"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}] if team else []

    cluster = read(a_node(), waiting, running, *namespaces)

    first, second = cluster.pod_infos
    rules, neighbor = first.member.rules, second.usage.neighbor
    named = [term.pods.namespaces for term in (*rules.affinity, *neighbor.repels)]
    assert named == ([{"vision"}] * 2 if team else [])
    assert bool(rules.delegated) is (team is None)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"n": 1}', '{"n": {"a": "b"}}'])
def test_unreadable_exclusions_exclude_none(text):
    assert ScorerLease(Metadata(annotations={EXCLUDED_NODES: text})).excluded_nodes == {}


@pytest.mark.parametrize("text", ["", "[]", "{", '{"n": 1}'])
def test_an_unreadable_list_of_refused_machines_refuses_none(text):
    assert ScorerLease(Metadata(annotations={REFUSED_MACHINES: text})).refused_machines == {}


def test_gpus_in_slices_make_a_claims_node(read):
    node = a_node()
    node["status"] = {}
    rule = a_rule("fault", "", "NoExecute", device="gpu-1")
    rule |= {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceTaintRule"}
    objects = [a_slice(*map(a_device, range(8)), node="n"), a_claim("gpu-2", node="n"), rule]

    for order in (objects, objects[::-1]):
        (built,) = read(*order, node).nodes
        assert built.is_claims
        assert built.machine_source is MachineSource.CATALOGUE
        assert [i for i, card in enumerate(built.cards) if card.claimed] == [2]
        assert [i for i, card in enumerate(built.cards) if not card.healthy] == [1]


def test_a_pod_is_tied_to_the_devices_of_its_claims_of_other_drivers(read):
    claim = a_claim("nic-0", node="n", name="nic", driver="nics.example")
    pod = a_held_pod(resourceClaims=[{"name": "nic", "resourceClaimName": "nic"}])

    (info,) = read(claim, a_node(), pod).pod_infos

    (place,) = info.member.claim_places
    assert [place.matches(name, {}) for name in ("n", "other")] == [True, False]


def test_resources_of_device_classes_are_known(read):
    nic = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "nic"},
        "spec": {"extendedResourceName": "rdma/hca"},
    }

    assert "rdma/hca" in read(nic, a_node()).class_resources


def test_a_gpu_that_several_claims_hold_leaves_the_node_unaccounted(read):
    node = a_node()
    node["status"] = {}
    claims = [a_claim("gpu-2", node="n", name=name) for name in ("a", "b")]
    cluster = read(a_slice(*map(a_device, range(8)), node="n"), *claims, node)
    assert cluster.ledger.nodes["n"].unaccounted == "several resource claims hold device gpu-2"


def test_devices_of_other_drivers_and_claims_without_gpus_are_left_out(read):
    node = a_node()
    others = [
        a_slice(a_device(0), node="n", driver="other.example"),
        a_claim("gpu-0", node="n", driver="other.example"),
        {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "c"}},
    ]
    assert read(node, *others).nodes == read(node).nodes
