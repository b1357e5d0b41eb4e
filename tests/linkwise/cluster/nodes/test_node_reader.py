from typing import Any

import msgspec
import pytest
from support.builders import a_machine, dgx1_v100

from linkwise.cluster.keys import (
    CORDON,
    GFD_COUNT,
    GFD_REPLICAS,
    GPU_CORE,
    GPU_COUNT,
    GPU_MEM,
    GPU_WHOLE,
    MODE,
    NODE_GPUSHARE,
    NODE_MODE,
    NODE_PLACEMENT,
    NVIDIA_GPU,
    NVIDIA_GPU_SHARED,
    RESOURCE_NAME,
)
from linkwise.cluster.mode import NodeMode, PackingStrategy
from linkwise.cluster.nodes.node import Card, MachineSource, Node, Taint
from linkwise.cluster.nodes.node_reader import read_node, uniform_machine
from linkwise.cluster.nodes.node_resources import NodeError, NodeObject
from linkwise.cluster.nodes.topology_configmap import PublishedTopology

CORE_MEM_NODE = {GPU_CORE: "400", GPU_COUNT: "4", GPU_MEM: "60"}


def read(
    mode: str | None,
    allocatable: dict[str, Any],
    *,
    capacity: dict[str, Any] | None = None,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    spec: dict[str, Any] | None = None,
    conditions: list[dict[str, str]] | None = None,
    **known: Any,
) -> Node:
    raw = {
        "kind": "Node",
        "metadata": {
            "name": "n1",
            "labels": {**({NODE_MODE: mode} if mode else {}), **(labels or {})},
            "annotations": annotations or {},
        },
        "spec": spec or {},
        "status": {"allocatable": allocatable, "capacity": capacity, "conditions": conditions},
    }
    return read_node(msgspec.json.decode(msgspec.json.encode(raw), type=NodeObject), **known)


@pytest.mark.parametrize(
    ("allocatable", "capacity", "resources"),
    [
        ({"rdma/hca": 4, "hugepages-2Mi": "4Mi"}, None, {"rdma/hca": 4, "hugepages-2Mi": 4 << 20}),
        (None, {"rdma/hca": 4}, {"rdma/hca": 4}),
        ({"cpu": 1}, {"cpu": 1, "rdma/hca": 4}, {}),
        ({"rdma/hca": 3}, {"rdma/hca": 4}, {"rdma/hca": 3}),
        ({"cpu": 1, "batch-cpu": 4}, None, {}),
    ],
    ids=["allocatable", "not written yet", "not allocatable", "some", "unknown name"],
)
def test_what_is_allocatable_can_be_requested(allocatable, capacity, resources):
    assert read("", allocatable, capacity=capacity).resources == resources


def published(
    n: int, *, memory: tuple[int, ...] = (), unhealthy: tuple[int, ...] = ()
) -> PublishedTopology:
    uuids = tuple(f"GPU-{i}" for i in range(n))
    machine = a_machine(n, {(0, 1): 2}, memory=memory, uuids=uuids)
    return PublishedTopology(machine, tuple(i not in unhealthy for i in range(n)))


def test_a_node_is_read_with_all_that_placement_asks():
    node = read(
        "topology",
        {"cpu": "95500m", "memory": "768Gi", "pods": "64", "ephemeral-storage": "1", GPU_WHOLE: 8},
        labels={NODE_PLACEMENT: "spread", "zone": "a"},
        spec={
            "unschedulable": True,
            "taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}],
        },
        machine=dgx1_v100(),
    )

    assert node == Node(
        name="n1",
        labels={NODE_MODE: "topology", NODE_PLACEMENT: "spread", "zone": "a"},
        mode=NodeMode.TOPOLOGY,
        placement=PackingStrategy.SPREAD,
        machine=dgx1_v100(),
        machine_source=MachineSource.POLICY,
        cards=(Card(),) * 8,
        cpu=95_500,
        memory=768 << 30,
        pods=64,
        resources={GPU_WHOLE: 8, "ephemeral-storage": 1},
        taints=(Taint("gpu", "yes", "NoSchedule"),),
        unschedulable=True,
    )
    assert node.usable_mask == 0b11111111


@pytest.mark.parametrize(
    ("labels", "offered", "warned"),
    [
        pytest.param({}, {GPU_MEM: 60}, True, id="shares"),
        pytest.param({}, {GPU_WHOLE: 8}, True, id="whole"),
        pytest.param({}, {GPU_MEM: 0, NVIDIA_GPU: 8}, False, id="by count"),
        pytest.param({NODE_GPUSHARE: "true"}, {GPU_MEM: 60, GPU_COUNT: 4}, False, id="gpushare"),
        pytest.param({NODE_MODE: "default"}, {GPU_MEM: 60}, False, id="left out on purpose"),
    ],
)
def test_offered_resource_without_a_mode_label_is_a_warning(labels, offered, warned):
    node = read(None, offered, labels=labels)

    text = f"has no label {MODE}: none of it is given out"
    assert any(text in warning for warning in node.warnings) == warned


def test_an_empty_object_is_a_node_without_gpus():
    node = read_node(NodeObject())

    assert (node.mode, node.machine, node.cards) == (NodeMode.DEFAULT, None, ())
    assert node.warnings == ()
    assert node.pods == 110


@pytest.mark.parametrize(
    ("label", "cards"),
    [("nvidia.com-gpu", 4), ("nvidia.com/gpu", 4), ("aliyun.com-gpu", 8), ("gpu", 8), (None, 8)],
)
def test_gpus_of_mode_topology_are_counted_by_the_resource_of_the_label(label, cards):
    labels = {RESOURCE_NAME: label} if label else {}

    node = read("topology", {GPU_WHOLE: 8, NVIDIA_GPU: 4}, labels=labels)

    assert len(node.cards) == cards
    assert node.gpu_resource == (NVIDIA_GPU if cards == 4 else GPU_WHOLE)


def test_the_label_of_the_resource_has_no_meaning_in_other_modes():
    node = read("core_mem", CORE_MEM_NODE, labels={RESOURCE_NAME: "nvidia.com-gpu"})

    assert node.gpu_resource == GPU_COUNT
    assert len(node.cards) == 4


@pytest.mark.parametrize(
    ("mode", "allocatable", "cards"),
    [
        (None, {NVIDIA_GPU: "8"}, 8),
        ("default", {NVIDIA_GPU: 2, GPU_WHOLE: 8}, 2),
        ("topology", {GPU_WHOLE: "8", NVIDIA_GPU: 4}, 8),
        ("share", {GPU_COUNT: "4", GPU_MEM: "60"}, 4),
        ("cgpu", {GPU_COUNT: "2", GPU_MEM: "30"}, 2),
        ("core_mem", CORE_MEM_NODE, 4),
        ("mps", CORE_MEM_NODE, 4),
        ("topology", {NVIDIA_GPU: "8"}, 0),
        ("mig", {NVIDIA_GPU: "8"}, 0),
        ("disabled", {NVIDIA_GPU: "8", GPU_WHOLE: 8}, 0),
        ("elsewhere", {GPU_WHOLE: 8}, 0),
    ],
)
def test_a_node_has_the_gpus_that_its_modes_resource_counts(mode, allocatable, cards):
    node = read(mode, allocatable)

    assert len(node.cards) == cards
    assert node.machine == (uniform_machine(cards) if cards else None)
    assert not node.machine_known


@pytest.mark.parametrize(
    ("labels", "known", "cards", "replicas"),
    [
        ({GFD_REPLICAS: "4"}, None, 2, 4),
        ({GFD_COUNT: "2"}, None, 2, 4),
        ({GFD_COUNT: "4", GFD_REPLICAS: "2"}, None, 4, 2),
        ({}, published(2), 2, 4),
        ({}, PublishedTopology(None, (True, False)), 0, 0),
        ({}, None, 0, 0),
        ({GFD_COUNT: "16"}, None, 0, 0),
        ({GFD_REPLICAS: "four"}, None, 0, 0),
        ({GFD_REPLICAS: "0"}, None, 0, 0),
    ],
    ids=str,
)
def test_replicas_of_each_gpu_come_from_the_labels_or_the_agent(labels, known, cards, replicas):
    node = read("timeslice", {NVIDIA_GPU_SHARED: "8"}, labels=labels, published=known)

    assert (len(node.cards), node.replicas) == (cards, replicas)
    assert bool(node.warnings) == (not replicas)


@pytest.mark.parametrize(
    ("labels", "cards", "reason"),
    [
        ({}, 0, "the number of GPUs of the 8 nvidia.com/gpu.shared is unknown"),
        ({GFD_COUNT: "some"}, 0, "the number of GPUs of the 8 nvidia.com/gpu.shared is unknown"),
        ({GFD_COUNT: "3"}, 3, "8 nvidia.com/gpu.shared are not the same number of replicas of"),
        ({GFD_COUNT: "16"}, 0, "8 nvidia.com/gpu.shared are not the same number of replicas of"),
        ({GFD_REPLICAS: "3"}, 2, "8 nvidia.com/gpu.shared are not the same number of replicas of"),
        (
            {GFD_COUNT: "2", GFD_REPLICAS: "2"},
            2,
            "8 nvidia.com/gpu.shared are not the same number of replicas of",
        ),
    ],
    ids=str,
)
def test_unknown_gpu_count_and_unequal_replicas_have_different_warnings(labels, cards, reason):
    node = read("timeslice", {NVIDIA_GPU_SHARED: "8"}, labels=labels)

    (warning,) = node.warnings
    assert len(node.cards) == cards
    assert warning.startswith(reason)
    assert warning.endswith(f"; the node labels {GFD_REPLICAS} and {GFD_COUNT} state it")


def test_replicas_that_do_not_divide_are_rounded_down_with_a_warning():
    node = read("timeslice", {NVIDIA_GPU_SHARED: "9"}, labels={GFD_REPLICAS: "4"})

    assert (len(node.cards), node.replicas) == (2, 4)
    assert GFD_REPLICAS in node.warnings[0]


def test_cards_share_the_registered_memory_equally_unless_their_own_is_published():
    alike = read("core_mem", CORE_MEM_NODE)
    differing = read("core_mem", CORE_MEM_NODE, published=published(4, memory=(24, 24, 15, 15)))

    assert [card.memory for card in alike.cards] == [15] * 4
    assert [card.memory for card in differing.cards] == [24, 24, 15, 15]


def test_memory_in_another_unit_is_a_warning():
    in_mib = read("share", {GPU_COUNT: "4", GPU_MEM: "60436"})
    large = read("share", {GPU_COUNT: "8", GPU_MEM: "1120"})

    assert "15109 GiB on one card cannot be" in in_mib.warnings[0]
    assert "--memory-unit=GiB" in in_mib.warnings[0]
    assert large.warnings == ()


def test_on_shared_cards_the_registered_memory_goes_before_a_mapped_machines():
    node = read("share", {GPU_COUNT: 2, GPU_MEM: 29}, machine=a_machine(2, memory=(16, 16)))

    assert [card.memory for card in node.cards] == [14, 14]
    assert node.machine_known


def test_mapped_machine_has_the_memory_of_whole_gpus():
    node = read("topology", {GPU_WHOLE: 2}, machine=a_machine(2, memory=(32, 32)))

    assert [card.memory for card in node.cards] == [32, 32]


def test_the_published_machine_goes_before_the_mapped_one():
    node = read("topology", {GPU_WHOLE: 4}, published=published(4), machine=a_machine(4))

    assert node.machine == published(4).machine
    assert [card.uuid for card in node.cards] == ["GPU-0", "GPU-1", "GPU-2", "GPU-3"]


def test_a_published_machine_stays_when_the_kubelet_counts_otherwise():
    node = read("topology", {GPU_WHOLE: 3}, published=published(4))

    assert len(node.cards) == 4
    assert "publishes 4 GPUs, but the kubelet counts 3" in node.warnings[0]


def test_a_mapped_machine_of_another_size_is_not_believed():
    node = read("topology", {GPU_WHOLE: 4}, machine=dgx1_v100())

    assert (node.machine, node.machine_known) == (uniform_machine(4), False)
    assert "8 GPUs, the kubelet 4" in node.warnings[0]


@pytest.mark.parametrize("count", [17, "1G", 10**18])
def test_more_gpus_than_any_machine_has_are_left_alone(count):
    node = read("topology", {GPU_WHOLE: count})

    assert node.cards == ()
    assert "at most 16" in node.warnings[0]


def test_card_is_usable_when_healthy_and_not_drained():
    node = read(
        "topology",
        {GPU_WHOLE: 4},
        annotations={CORDON: " 3 ,"},
        published=published(4, unhealthy=(0,)),
        unhealthy="1",
    )

    assert [card.healthy for card in node.cards] == [False, False, True, True]
    assert [card.cordoned for card in node.cards] == [False, False, False, True]
    assert node.usable_mask == 0b0100
    assert node.warnings == ()


def test_a_cordon_that_cannot_be_read_drains_nothing_and_warns():
    node = read("topology", {GPU_WHOLE: 4}, annotations={CORDON: "all"})

    assert node.usable_mask == 0b1111
    assert node.warnings[0].startswith(f"{CORDON}: 'all'")


def test_readable_entries_of_a_list_of_unhealthy_gpus_are_excluded_and_others_are_a_warning():
    node = read("topology", {GPU_WHOLE: 4}, unhealthy="1, 9")

    assert node.usable_mask == 0b1101
    assert node.warnings == (
        "ConfigMap unhealthy-gpu-n1: '9': not an index of one of 4 GPUs (0,3 is an example)",
    )


@pytest.mark.parametrize(
    ("mapped", "machine", "known"),
    [(a_machine(4, {(0, 1): 2}),) * 2 + (True,), (None, uniform_machine(4), False)],
    ids=["a mapped machine", "nothing"],
)
def test_published_health_is_used_even_if_links_are_unreadable(mapped, machine, known):
    topology = PublishedTopology(None, (True, False, True, True), warnings=("linkType: missing",))

    node = read("topology", {GPU_WHOLE: 4}, published=topology, machine=mapped)

    assert (node.machine, node.machine_known) == (machine, known)
    assert node.usable_mask == 0b1101
    assert node.warnings == ("published topology: linkType: missing",)


def test_warnings_of_a_published_machine_are_warnings_of_the_node():
    machine = a_machine(2, warnings=("GPU0 and GPU1 are linked differently each way: not linked",))

    node = read("topology", {GPU_WHOLE: 2}, published=PublishedTopology(machine, (True, True)))

    assert node.warnings == (f"published topology: {machine.warnings[0]}",)


def test_unnamed_gpus_withheld_by_the_kubelet_are_a_warning():
    node = read("topology", {GPU_WHOLE: 6}, capacity={GPU_WHOLE: 8})
    named = read("topology", {GPU_WHOLE: 6}, capacity={GPU_WHOLE: 8}, unhealthy="0,5")

    assert len(node.cards) == 8
    assert node.warnings == ("2 of 8 GPUs are not allocatable, and it is unknown which",)
    assert named.warnings == ()


def test_when_the_kubelet_gives_out_no_gpu_all_are_unhealthy():
    node = read("topology", {GPU_WHOLE: 0}, capacity={GPU_WHOLE: 8})

    assert len(node.cards) == 8
    assert node.usable_mask == 0
    assert node.warnings == ()


@pytest.mark.parametrize(
    ("conditions", "ready"),
    [
        (None, True),
        ([{"type": "DiskPressure", "status": "True"}], True),
        ([{"type": "Ready", "status": "True"}], True),
        ([{"type": "Ready", "status": "False"}], False),
        ([{"type": "Ready", "status": "Unknown"}], False),
    ],
    ids=str,
)
def test_a_node_is_not_ready_only_when_a_condition_says_so(conditions, ready):
    assert read("topology", {GPU_WHOLE: 8}, conditions=conditions).ready is ready


def test_capacity_is_used_for_resources_that_allocatable_lacks():
    node = read("topology", {}, capacity={GPU_WHOLE: 8, "cpu": "4", "example.com/x": -3})

    assert (len(node.cards), node.cpu) == (8, 4000)
    assert node.resources == {GPU_WHOLE: 8, "example.com/x": 0}


def test_an_amount_that_is_no_quantity_is_an_error_that_says_where():
    with pytest.raises(NodeError, match=r"node n1: status.allocatable\[cpu\]: 'many' is no"):
        read("topology", {"cpu": "many"})


def test_a_node_has_one_card_for_each_gpu_of_its_machine():
    with pytest.raises(NodeError, match="one card for each"):
        Node("n1", machine=uniform_machine(2), cards=(Card(),))
