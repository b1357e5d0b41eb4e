import msgspec
import pytest
from support.builders import dgx1_v100

from linkwise.cluster import keys
from linkwise.cluster.nodes.node_resources import NodeError, NodeObject
from linkwise.cluster.nodes.topology_configmap import PublishedTopology, write_published
from linkwise.planning.state.node_info import NodeConfigMap, build_node
from linkwise.policy.document import parse_policy
from linkwise.policy.snapshot import PolicySnapshot
from linkwise.topology.constants import Constants
from linkwise.topology.machine import TopologyError

LABELS = {keys.NODE_MODE: "topology", "pool": "a"}
NO_POLICY = PolicySnapshot()
MAPPED = "machines:\n- {nodeLabels: {pool: a}, machine: dgx1-p100}\n"


def a_raw(gpus=8, labels=None, **resources):
    amounts = {keys.GPU_WHOLE: str(gpus), "cpu": "96", "memory": "768Gi", **resources}
    return msgspec.convert(
        {
            "metadata": {"name": "gpu-0", "labels": LABELS if labels is None else labels},
            "status": {"allocatable": amounts, "capacity": amounts},
        },
        NodeObject,
    )


def a_map(name, data=None, labels=None):
    metadata = {"name": name, "namespace": "kube-system", "labels": labels}
    return msgspec.convert({"metadata": metadata, "data": data}, NodeConfigMap)


def topology_of(name="gpu-0-topology", unhealthy=(), data=None, machine=None):
    machine = machine or dgx1_v100()
    healthy = tuple(i not in unhealthy for i in range(machine.n))
    speeds = [[0.0] * machine.n] * machine.n
    found = write_published(PublishedTopology(machine, healthy), speeds) if data is None else data
    return a_map(name, found, {keys.NODE_MODE: "topology", keys.TOPOLOGY_NODE: "gpu-0"})


def unhealthy(text):
    return a_map("unhealthy-gpu-gpu-0", {keys.UNHEALTHY_KEY: text})


def known(*configmaps, raw=None, policy=""):
    snapshot = PolicySnapshot(parse_policy(policy))
    return build_node(raw or a_raw(), {one.metadata.name: one for one in configmaps}, snapshot)


def out_of_use(node):
    return [i for i, card in enumerate(node.cards) if not card.healthy]


# ---- The node of a ConfigMap.


@pytest.mark.parametrize(
    ("found", "node", "lists_unhealthy"),
    [
        pytest.param(topology_of(), "gpu-0", False, id="topology"),
        pytest.param(unhealthy("1"), "gpu-0", True, id="unhealthy GPUs"),
        pytest.param(a_map("other"), None, False, id="anything else"),
        pytest.param(
            a_map("other", labels={keys.TOPOLOGY_NODE: "gpu-0"}), None, False, id="half marked"
        ),
    ],
)
def test_a_config_map_is_about_one_node_or_none(found, node, lists_unhealthy):
    assert (found.node, found.lists_unhealthy) == (node, lists_unhealthy)


# ---- Machines.


def test_gpus_of_an_unknown_machine_are_equal():
    node = known()

    assert (len(node.cards), node.machine_known) == (8, False)


def test_a_node_has_the_machine_that_its_agent_publishes():
    node = known(topology_of())

    assert node.machine_known
    assert node.machine.links == dgx1_v100().links


def test_a_node_has_the_machine_that_the_policy_names():
    assert known(policy=MAPPED).machine_known
    assert not known(raw=a_raw(labels={keys.NODE_MODE: "topology"}), policy=MAPPED).machine_known


H100 = {
    keys.GFD_PRODUCT: "NVIDIA-H100-80GB-HBM3",
    keys.GFD_COUNT: "8",
    keys.GFD_MEMORY: "81559",
}

WITHOUT_MEMORY = {key: H100[key] for key in (keys.GFD_PRODUCT, keys.GFD_COUNT)}


def labelled(gpus=8, **labels):
    return a_raw(gpus, {**LABELS, **H100, **labels})


@pytest.mark.parametrize(
    ("raw", "known_by"),
    [
        pytest.param(labelled(), "gpu-feature-discovery", id="product, count and memory"),
        pytest.param(
            a_raw(labels={**LABELS, **WITHOUT_MEMORY}),
            "gpu-feature-discovery",
            id="without memory",
        ),
        pytest.param(labelled(4), "unknown", id="the kubelet counts fewer"),
        pytest.param(labelled(4, **{keys.GFD_COUNT: "4"}), "unknown", id="part of a board"),
        pytest.param(labelled(**{keys.GFD_MEMORY: "40960"}), "unknown", id="other memory"),
        pytest.param(labelled(**{keys.GFD_MEMORY: "much"}), "unknown", id="memory is no number"),
        pytest.param(labelled(**{keys.GFD_COUNT: "eight"}), "unknown", id="count is no number"),
        pytest.param(
            labelled(**{keys.GFD_PRODUCT: "NVIDIA-H100-80GB-HBM3-SHARED"}), "unknown", id="shared"
        ),
        pytest.param(labelled(**{keys.GFD_PRODUCT: "NVIDIA-L4"}), "unknown", id="cards"),
    ],
)
def test_labels_of_gpu_feature_discovery_identify_a_machine(raw, known_by):
    node = known(raw=raw)

    assert (node.machine_source, node.machine_known) == (known_by, known_by != "unknown")
    if node.machine_known:
        assert node.machine.switched
        assert {card.memory for card in node.cards} == {80}


def test_agent_and_policy_precede_the_labels():
    assert known(topology_of(), raw=labelled()).machine_source == "agent"
    assert known(raw=labelled(), policy=MAPPED).machine_source == "policy"


def test_unhealthy_gpus_of_every_topology_count_without_a_machine():
    second = topology_of("second", data={keys.TOPOLOGY_DEVICES: '{"0": "Unhealthy"}'})

    assert out_of_use(known(topology_of("first", data={}), second)) == [0]


def test_the_published_machine_precedes_that_of_the_policy():
    node = known(topology_of(machine=dgx1_v100()), policy=MAPPED)

    assert node.machine.links == dgx1_v100().links
    assert node.machine.constants == Constants()


def test_an_invalid_topology_is_skipped_with_a_warning():
    broken = topology_of(
        "a-broken",
        data={keys.TOPOLOGY_MACHINE: "{", keys.TOPOLOGY_DEVICES: '{"1":"Unhealthy"}'},
    )
    whole = topology_of("b-whole", unhealthy=(2,))

    for configmaps in ((broken,), (broken, whole)):
        node = known(*configmaps)
        assert node.machine_known is (whole in configmaps)
        assert out_of_use(node) == ([1, 2] if whole in configmaps else [1])
        assert [warning.split(": ")[:2] for warning in node.warnings] == [
            ["published topology", "machine.json"],
            ["published topology", "linkType"],
            ["published topology", "devices"],
        ]


def test_speeds_of_links_are_those_of_the_policy():
    node = known(topology_of(), policy="constants: {nvlink: 11}\n")

    assert node.machine.constants == Constants(nvlink=11.0)


def test_the_speeds_of_a_node_without_gpus_do_not_matter():
    node = known(raw=a_raw(0), policy="constants: {nvlink: 11}\n")

    assert node.machine is None


def test_the_mismatch_of_any_published_topology_counts():
    wrong = topology_of("second", data={keys.TOPOLOGY_MISMATCH: "process 7 uses GPU 3"})

    assert known(topology_of("first"), wrong).mismatch == "process 7 uses GPU 3"
    assert known(topology_of("first")).mismatch is None


# ---- How shares are laid out.


@pytest.mark.parametrize(
    ("label", "policy", "expected", "warned"),
    [
        pytest.param(None, "", "binpack", None, id="default"),
        pytest.param(None, "spread", "spread", None, id="the policy"),
        pytest.param("binpack", "spread", "binpack", None, id="the node before the policy"),
        pytest.param("spread", "binpack", "spread", None, id="the node"),
        pytest.param("spraed", "spread", "spread", "spread is taken", id="misspelt"),
        pytest.param("spraed", "", "binpack", "binpack is taken", id="misspelt, no policy"),
    ],
)
def test_the_strategy_for_shares_is_that_of_the_node_else_of_the_policy(
    label, policy, expected, warned
):
    labels = {keys.NODE_MODE: "share", **({keys.NODE_PLACEMENT: label} if label else {})}
    raw = a_raw(0, labels, **{keys.GPU_COUNT: "2", keys.GPU_MEM: "32"})

    node = known(raw=raw, policy=f"placement: {{strategy: {policy}}}\n" if policy else "")

    assert node.placement == expected
    assert [warned in warning for warning in node.warnings] == ([True] if warned else [])


# ---- Health.


@pytest.mark.parametrize(
    ("configmaps", "expected"),
    [
        pytest.param([unhealthy("0, 3")], [0, 3], id="listed"),
        pytest.param([unhealthy("all")], [], id="what cannot be read excludes nothing"),
        pytest.param([a_map("unhealthy-gpu-gpu-0")], [], id="no list"),
        pytest.param([topology_of(unhealthy=(2,))], [2], id="published"),
        pytest.param([topology_of(unhealthy=(2,)), unhealthy("5")], [2, 5], id="both"),
    ],
)
def test_unhealthy_gpus_are_not_used(configmaps, expected):
    assert out_of_use(known(*configmaps)) == expected


def test_an_invalid_list_of_unhealthy_gpus_is_a_warning():
    assert known(unhealthy("all")).warnings == (
        "ConfigMap unhealthy-gpu-gpu-0: 'all': not an index of one of 8 GPUs (0,3 is an example)",
    )


# ---- What cannot be read.


def test_an_invalid_quantity_is_an_error():
    with pytest.raises(NodeError):
        known(raw=a_raw("many"))


def test_a_machine_that_is_not_in_the_catalogue_is_an_error():
    with pytest.raises(TopologyError):
        known(policy="machines:\n- {nodeLabels: {pool: a}, machine: no-such}\n")
