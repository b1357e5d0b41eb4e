"""Claims nodes: their machine, their GPUs, and what is said of them."""

from dataclasses import replace

import pytest
from support.dra import a_device, a_slice, read_slice

from linkwise.cluster import keys
from linkwise.cluster.mode import NodeMode
from linkwise.cluster.nodes.claims_node import read_claims_node
from linkwise.cluster.nodes.device_pool import gpu_pool, pools_of
from linkwise.cluster.nodes.node import MachineSource
from linkwise.cluster.nodes.node_resources import NodeObject, _NodeStatus
from linkwise.cluster.nodes.topology_configmap import PublishedTopology
from linkwise.cluster.objects.metadata import Metadata
from linkwise.topology.catalogue import entry
from linkwise.topology.machine import Level

TOPOLOGY = {keys.NODE_MODE: "topology"}
NODE = "node-a"


def pool_of(*devices):
    return gpu_pool(NODE, pools_of([read_slice(a_slice(*devices))])[NODE], None)


EIGHT = pool_of(*map(a_device, range(8)))


def read(pool=EIGHT, labels=TOPOLOGY, annotations=None, machine=None, **amounts):
    published, busy = amounts.pop("published", None), amounts.pop("busy", {})
    metadata = Metadata(name=NODE, labels=labels, annotations=annotations)
    raw = NodeObject(metadata=metadata, status=_NodeStatus(capacity=amounts or None))
    captured = PublishedTopology(published, (True,) * published.n, busy=busy) if published else None
    return read_claims_node(raw, pool, published=captured, machine=machine)


def test_the_catalogue_gives_the_links_and_slices_give_the_gpus():
    node = read()
    machine = node.machine

    assert (node.mode, node.is_claims, node.gpu_resource) == (
        NodeMode.TOPOLOGY,
        True,
        keys.NVIDIA_GPU,
    )
    assert node.machine_source is MachineSource.CATALOGUE
    assert machine.links == entry("dgx-h100").machine.links
    assert (
        [gpu.uuid for gpu in machine.gpus]
        == [card.uuid for card in node.cards]
        == [f"GPU-{i}" for i in range(8)]
    )
    assert [gpu.bus_id for gpu in machine.gpus] == [
        f"0000:{0x10 + 8 * i:02x}:00.0" for i in range(8)
    ]
    assert machine.memory == tuple(card.memory for card in node.cards) == (79,) * 8
    assert node.pool.devices == tuple(f"gpu-{i}" for i in range(8))
    assert node.warnings == ()


@pytest.mark.parametrize(
    ("labels", "amounts"),
    [
        ({}, {}),
        ({keys.NODE_MODE: "share"}, {}),
        (TOPOLOGY, {keys.NVIDIA_GPU: "8"}),
        (TOPOLOGY, {keys.GPU_WHOLE: "8"}),
    ],
    ids=["no mode", "another mode", "NVIDIA's plugin", "our agent"],
)
def test_other_nodes_are_no_claims_nodes(labels, amounts):
    assert read(labels=labels, **amounts) is None


def test_a_plugin_that_left_no_gpus_behind_does_not_matter():
    assert read(**{keys.NVIDIA_GPU: "0"}).is_claims


def numa_of(i, numa, root=None):
    return a_device(
        i, **{"resource.kubernetes.io/numaNode": numa, "resource.kubernetes.io/pcieRoot": root}
    )


@pytest.mark.parametrize(
    ("fields", "source", "warned"),
    [
        ({}, "catalogue", False),
        ({"machine": entry("dgx1-v100").machine}, "policy", False),
        ({"machine": entry("v100x4-p3").machine}, "resource-slices", True),
        ({"published": entry("hgx-h200").machine}, "captured", False),
        ({"published": entry("v100x4-p3").machine}, "catalogue", False),
        (
            {"pool": pool_of(*(a_device(i, productName="NVIDIA X") for i in range(8)))},
            "resource-slices",
            False,
        ),
        (
            {"pool": pool_of(*(a_device(i, memory="40Gi") for i in range(8)))},
            "resource-slices",
            False,
        ),
        ({"pool": pool_of(*map(a_device, range(7)))}, "resource-slices", False),
        ({"pool": pool_of(*(numa_of(i, None) for i in range(4)))}, "unknown", False),
        ({"pool": pool_of(a_device(0))}, "resource-slices", False),
    ],
    ids=[
        "product",
        "policy",
        "policy with another number",
        "captured",
        "captured with another number",
        "unknown product",
        "other memory",
        "other number",
        "nothing known",
        "one GPU",
    ],
)
def test_sources_of_links(fields, source, warned):
    node = read(**fields)
    assert node.machine_source.value == source
    assert bool(node.warnings) == warned
    assert [gpu.uuid for gpu in node.machine.gpus] == [card.uuid for card in node.cards]


def test_a_gpu_on_which_a_process_of_no_pod_that_has_it_runs_is_closed_with_the_reason():
    busy = {"GPU-3": "process 7 of the host", "GPU-of-another-node": "process 8 of the host"}
    node = read(published=entry("dgx-h100").machine, busy=busy)

    assert [i for i, card in enumerate(node.cards) if card.is_closed] == [3]
    assert all(card.healthy and not card.faulty for card in node.cards)
    assert node.pool.busy == {"gpu-3"}
    assert node.warnings == (
        "GPU3: closed until the process has ended, by the agent: process 7 of the host",
    )


def test_pcie_roots_and_numa_nodes_give_levels():
    pool = pool_of(
        numa_of(0, 0, "pci0000:10"), numa_of(1, 0, "pci0000:10"), numa_of(2, 0), numa_of(3, 1)
    )
    levels = read(pool).machine.levels
    assert (levels[0][1], levels[0][2], levels[0][3]) == (Level.PXB, Level.NODE, Level.SYS)
    assert not any(any(row) for row in read(pool).machine.links)


@pytest.mark.parametrize(
    ("device", "healthy", "cordoned", "words"),
    [
        (
            a_device(1, taints=[("nvidia.com/xid", "79", "NoSchedule")]),
            False,
            False,
            "nvidia.com/xid",
        ),
        (a_device(1, shared=True), True, True, "several claims"),
        (a_device(1, partition4=3), True, True, "Fabric Manager partitions"),
        (a_device(1, **{"gpu.nvidia.com/partition1": 7}), True, True, "Fabric Manager partitions"),
    ],
    ids=["tainted", "shared", "of a partition", "of a partition, with a domain"],
)
def test_a_gpu_that_is_not_used(device, healthy, cordoned, words):
    node = read(pool_of(a_device(0), device))
    assert [(card.healthy, card.cordoned) for card in node.cards] == [
        (True, False),
        (healthy, cordoned),
    ]
    assert node.pool.unmanaged == ({"gpu-1"} if cordoned else frozenset())
    assert any(words in warning for warning in node.warnings)


def test_a_gpu_that_the_slices_lack_is_unhealthy():
    pool = gpu_pool(NODE, pools_of([read_slice(a_slice(*map(a_device, range(1, 8))))])[NODE], EIGHT)
    node = read(pool)
    assert [card.healthy for card in node.cards] == [False] + [True] * 7
    assert node.machine_source is MachineSource.CATALOGUE


def test_cordoned_gpus_are_closed():
    assert read(annotations={keys.CORDON: "0,3"}).usable_mask == 0b11110110


def test_missing_slices_are_said():
    node = read(replace(EIGHT, missing="the driver's slices are missing"))
    assert (node.pool.missing, len(node.cards)) == ("the driver's slices are missing", 8)
    assert node.warnings == (node.pool.missing,)


def test_a_pool_without_whole_gpus_makes_a_node_without_gpus():
    node = read(pool_of(a_device(0, type="mig", parentUUID="GPU-0")))
    assert (node.is_claims, node.cards, node.machine) == (True, (), None)
    assert "1 device is no whole GPU" in node.warnings[0]
