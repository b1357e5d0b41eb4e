import json

import msgspec
import pytest

from cluster import keys
from cluster.mode import NodeMode
from cluster.nodes.device_claims import (
    ClaimedGPUs,
    ClaimObject,
    Device,
    SliceObject,
    claimed_gpus,
    without_claimed,
)
from cluster.nodes.node import Card, Node, uniform_machine

GPU_0, GPU_1 = Device("node-a", "node-a", "gpu-0"), Device("node-a", "node-a", "gpu-1")


def claim(*results, node=None):
    """Decode a claim with these results: dicts that differ from the usual one."""
    usual = {"driver": "gpu.nvidia.com", "pool": "node-a", "device": "gpu-0", "request": "r"}
    allocation = {"devices": {"results": [{**usual, **one} for one in results]}}
    if node:
        fields = [{"key": "metadata.name", "operator": "In", "values": [node]}]
        allocation["nodeSelector"] = {"nodeSelectorTerms": [{"matchFields": fields}]}
    raw = json.dumps({"metadata": {}, "spec": {}, "status": {"allocation": allocation}})
    return msgspec.json.decode(raw, type=ClaimObject).devices


def device_slice(*devices, driver="gpu.nvidia.com", node="node-a", **pool):
    """Decode a slice with these devices: names, and attributes of type string."""
    spec = {
        "driver": driver,
        "nodeName": node,
        "pool": {"name": node, "generation": 1, "resourceSliceCount": 1, **pool},
        "devices": [
            {
                "name": name,
                "attributes": {
                    "index": {"int": 0},
                    **{key: {"string": value} for key, value in attributes.items()},
                },
            }
            for name, attributes in devices
        ],
    }
    raw = json.dumps({"metadata": {"name": "slice"}, "spec": spec})
    return msgspec.json.decode(raw, type=SliceObject).devices


@pytest.mark.parametrize(
    ("result", "devices"),
    [
        ({}, {GPU_0}),
        ({"device": "gpu-1"}, {GPU_1}),
        ({"adminAccess": True}, set()),
        ({"driver": "compute-domain.nvidia.com"}, set()),
        ({"driver": "dra.networking"}, set()),
    ],
    ids=["a GPU", "another GPU", "only observed", "another kind of device", "a network card"],
)
def test_claim_holds_the_gpus_of_its_allocation(result, devices):
    assert claim(result) == devices


def test_claim_without_allocation_holds_nothing():
    assert msgspec.json.decode(b'{"status":{}}', type=ClaimObject).devices == frozenset()


@pytest.mark.parametrize(
    ("attributes", "uuid"),
    [
        ({"uuid": "GPU-a"}, "GPU-a"),
        ({"gpu.nvidia.com/uuid": "GPU-a"}, "GPU-a"),
        ({"uuid": "MIG-x", "parentUUID": "GPU-a"}, "GPU-a"),
        ({}, None),
    ],
    ids=["plain", "qualified", "MIG device", "none"],
)
def test_uuid_of_a_device_is_that_of_its_gpu(attributes, uuid):
    assert device_slice(("gpu-0", attributes)).uuids == {"gpu-0": uuid}


@pytest.mark.parametrize(
    ("driver", "node"),
    [("other.example", "node-a"), ("gpu.nvidia.com", "")],
    ids=["another driver", "no node of its own"],
)
def test_other_slices_are_ignored(driver, node):
    assert device_slice(("gpu-0", {}), driver=driver, node=node) is None


def test_claimed_gpus_count_once_on_the_node_of_their_slice():
    slices = [
        device_slice(("gpu-0", {"uuid": "GPU-a"}), ("gpu-1", {"uuid": "GPU-b"})),
        device_slice(("gpu-0", {"uuid": "GPU-c"}), node="node-b"),
    ]
    claims = [claim({}), claim({}, {"device": "gpu-1"}), claim({"pool": "node-b"})]
    assert claimed_gpus(claims, slices) == {
        "node-a": ClaimedGPUs(frozenset({"GPU-a", "GPU-b"})),
        "node-b": ClaimedGPUs(frozenset({"GPU-c"})),
    }


def test_device_without_a_slice_counts_on_the_node_of_its_pool():
    assert claimed_gpus([claim({})], []) == {"node-a": ClaimedGPUs(unknown=frozenset({GPU_0}))}


A, B = ("gpu-0", {"uuid": "GPU-a"}), ("gpu-1", {"uuid": "GPU-b"})


@pytest.mark.parametrize("generation", [1, 9])
def test_a_slice_of_another_node_says_nothing_about_devices_of_a_pool(generation):
    foreign = device_slice(
        ("gpu-0", {"uuid": "GPU-z"}), node="node-b", name="node-a", generation=generation
    )
    both = claim({}, {"device": "gpu-1"}, node="node-a")

    for slices in ([foreign, device_slice(A, B)], [device_slice(A, B), foreign]):
        assert claimed_gpus([both], slices) == {
            "node-a": ClaimedGPUs(frozenset({"GPU-a", "GPU-b"}))
        }


def test_the_allocation_of_a_claim_names_the_node():
    own = device_slice(A, name="gpus")

    assert claimed_gpus([claim({"pool": "gpus"}, node="node-a")], [own]) == {
        "node-a": ClaimedGPUs(frozenset({"GPU-a"}))
    }


@pytest.mark.parametrize(
    ("slices", "known"),
    [
        ([device_slice(A), device_slice(("gpu-0", {"uuid": "GPU-n"}), generation=2)], "GPU-n"),
        ([device_slice(("gpu-0", {"uuid": "GPU-n"}), generation=2), device_slice(A)], "GPU-n"),
        ([device_slice(A, resourceSliceCount=2)], None),
        ([device_slice(A, resourceSliceCount=2), device_slice(B, resourceSliceCount=2)], "GPU-a"),
        ([device_slice(A), device_slice(B)], None),
        ([device_slice(A), device_slice(B, generation=2, resourceSliceCount=2)], None),
        ([device_slice(A, resourceSliceCount=2), device_slice(A, resourceSliceCount=2)], None),
    ],
    ids=[
        "newer generation",
        "older generation",
        "slice missing",
        "two slices",
        "too many slices",
        "slice of newer generation missing",
        "one name twice",
    ],
)
def test_only_the_newest_complete_slices_of_a_pool_count(slices, known):
    expected = ClaimedGPUs(frozenset({known})) if known else ClaimedGPUs(unknown={GPU_0})
    assert claimed_gpus([claim({})], slices) == {"node-a": expected}


def our_node(**fields):
    cards = (Card(uuid="GPU-a"), Card(uuid="GPU-b"))
    return Node("a", mode=NodeMode.TOPOLOGY, machine=uniform_machine(2), cards=cards, **fields)


def test_claimed_card_of_our_node_takes_no_new_pod():
    node = without_claimed(our_node(), ClaimedGPUs(frozenset({"GPU-b"})))
    assert (node.usable_mask, node.mismatch) == (0b01, None)


@pytest.mark.parametrize(
    "claimed",
    [ClaimedGPUs(frozenset({"GPU-z"})), ClaimedGPUs(unknown=frozenset({GPU_0}))],
    ids=["of no card", "without a UUID"],
)
def test_nothing_is_placed_on_our_node_where_the_claimed_gpu_is_unknown(claimed):
    assert "resource claim" in without_claimed(our_node(), claimed).mismatch


@pytest.mark.parametrize(
    ("offered", "left"),
    [
        ({keys.NVIDIA_GPU: 8}, {keys.NVIDIA_GPU: 6}),
        ({keys.NVIDIA_GPU: 1}, {keys.NVIDIA_GPU: 0}),
        ({}, {}),
    ],
    ids=["enough", "fewer", "none"],
)
def test_node_of_nvidias_plugin_offers_as_many_fewer(offered, left):
    claimed = ClaimedGPUs(frozenset({"GPU-a"}), frozenset({GPU_1}))
    assert without_claimed(Node("a", resources=offered), claimed).resources == left


def test_node_without_claims_is_unchanged():
    node = our_node()
    assert without_claimed(node, ClaimedGPUs()) is node
