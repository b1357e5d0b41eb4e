"""GPUs that claims hold, by the slices of their node."""

import pytest
from support.dra import a_claim, a_device, a_rule, a_slice, read_claim, read_rule, read_slice

from linkwise.cluster import keys
from linkwise.cluster.mode import NodeMode
from linkwise.cluster.nodes.device_claims import Device
from linkwise.cluster.nodes.node import Card, DevicePool, Node
from linkwise.cluster.nodes.node_devices import ClaimedGPUs, devices_by_node, without_claimed
from linkwise.cluster.nodes.node_reader import uniform_machine

NODE = "node-a"
GPU_0, GPU_1 = Device(NODE, NODE, "gpu-0"), Device(NODE, NODE, "gpu-1")
TWO = a_slice(a_device(0), a_device(1))
MIG = a_device(0, name="gpu-0-mig-9-0-4", type="mig", uuid="MIG-1", parentUUID="GPU-0")


def devices(slices, claims=(), rules=()):
    """Return the devices by node, from objects as Kubernetes writes them."""
    return devices_by_node(map(read_slice, slices), map(read_claim, claims), map(read_rule, rules))


def claimed(slices, *claims):
    found = devices(slices, claims)
    return {node: one.claimed for node, one in found.items() if one.claimed.count}


def held(*uuids):
    return {NODE: ClaimedGPUs(frozenset(uuids))}


def unknown(*names):
    return {NODE: ClaimedGPUs(unknown=frozenset(Device(NODE, NODE, name) for name in names))}


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ({}, {GPU_0}),
        ({"device": "gpu-1"}, {GPU_1}),
        ({"adminAccess": True}, None),
        ({"driver": "compute-domain.nvidia.com"}, None),
        ({"driver": "dra.networking"}, None),
    ],
    ids=["a GPU", "another GPU", "only observed", "another kind of device", "a network card"],
)
def test_claim_holds_the_gpus_of_its_allocation(result, expected):
    claim = read_claim(a_claim("gpu-0", **result))
    assert (claim and claim.devices) == expected


def test_claim_names_its_pod():
    claim = read_claim(a_claim("gpu-0", name="lw-1", owner="pod-1"))
    assert (claim.namespace, claim.name, claim.owner) == ("team", "lw-1", "pod-1")


OURS = {"key": keys.PLACED, "operator": "Exists", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("results", "time", "bypassed"),
    [
        ({}, "2026-01-02T03:04:05Z", 1767323045.0),
        ({"tolerations": [OURS]}, "2026-01-02T03:04:05Z", None),
        ({"tolerations": [{"operator": "Exists"}]}, "2026-01-02T03:04:05Z", None),
        ({"tolerations": [{"key": "other"}]}, "2026-01-02T03:04:05Z", 1767323045.0),
        ({}, "soon", None),
        ({}, None, None),
    ],
    ids=["none", "ours", "every taint", "another taint", "no time", "time not given"],
)
def test_claim_that_does_not_tolerate_our_taint(results, time, bypassed):
    raw = a_claim("gpu-0", **results)
    raw["status"]["allocation"]["allocationTimestamp"] = time
    assert read_claim(raw).bypassed == bypassed


def test_claim_without_allocation_holds_nothing():
    assert read_claim({"status": {}}) is None


def test_claimed_gpus_count_once_on_the_node_of_their_slice():
    slices = [TWO, a_slice(a_device(0, uuid="GPU-c"), node="node-b")]
    claims = a_claim("gpu-0"), a_claim("gpu-0", "gpu-1"), a_claim("gpu-0", node="node-b")
    assert claimed(slices, *claims) == {
        **held("GPU-0", "GPU-1"),
        "node-b": ClaimedGPUs(frozenset({"GPU-c"})),
    }


def test_device_without_a_slice_counts_on_the_node_of_its_pool():
    assert claimed([], a_claim("gpu-0", named_node=False)) == unknown("gpu-0")


@pytest.mark.parametrize("generation", [1, 9])
def test_a_slice_of_another_node_says_nothing_about_devices_of_a_pool(generation):
    foreign = a_slice(a_device(5), node="node-b", pool=NODE, generation=generation)
    claim = a_claim("gpu-0", "gpu-1")

    for slices in ([foreign, TWO], [TWO, foreign]):
        found = devices(slices, [claim])
        assert found[NODE] == devices([TWO], [claim])[NODE]
        # The pool is none of the other node's either: it has another name.
        assert found["node-b"].pool is None


def test_the_allocation_of_a_claim_names_the_node():
    own = a_slice(a_device(0), pool="gpus")
    assert claimed([own], a_claim("gpu-0", pool="gpus")) == held("GPU-0")


@pytest.mark.parametrize(
    ("slices", "expected"),
    [
        ([TWO, a_slice(a_device(0, uuid="GPU-n"), generation=2)], held("GPU-n")),
        ([a_slice(a_device(0), count=2)], unknown("gpu-0")),
        ([a_slice(a_device(0), count=2), a_slice(a_device(1), count=2)], held("GPU-0")),
        ([a_slice(a_device(0)), a_slice(a_device(1))], unknown("gpu-0")),
        ([a_slice(a_device(0), count=2), a_slice(a_device(0), count=2)], unknown("gpu-0")),
        ([a_slice(a_device(0, uuid=None))], unknown("gpu-0")),
    ],
    ids=[
        "newer generation",
        "slice missing",
        "two slices",
        "too many slices",
        "one name twice",
        "no UUID",
    ],
)
def test_only_the_newest_complete_slices_of_a_pool_count(slices, expected):
    assert claimed(slices, a_claim("gpu-0")) == expected


@pytest.mark.parametrize(
    ("device", "gpus"),
    [
        (MIG, {"GPU-0"}),
        (a_device(9, name="gpu-vfio-0", type="vfio", bus=0x18, uuid="VFIO-1"), {"GPU-1"}),
        (
            a_device(9, type="mig", uuid=None, counters=("gpu-1-counter-set",)),
            {"GPU-1"},
        ),
        (a_device(9, type="mig", uuid="MIG-2", parentUUID="GPU-9"), {"GPU-9"}),
    ],
    ids=["MIG device", "same bus id", "same counter set", "MIG device of no whole GPU"],
)
def test_a_part_of_a_gpu_holds_the_gpu(device, gpus):
    whole = (
        a_device(0, counters=("gpu-0-counter-set",)),
        a_device(1, counters=("gpu-1-counter-set",)),
    )
    assert claimed([a_slice(*whole, device)], a_claim(device["name"])) == held(*gpus)


def test_claims_keep_their_gpus_while_slices_are_missing():
    claim = a_claim("gpu-1")
    before = devices([TWO], [claim])[NODE]
    gone = devices([], [claim])[NODE].after(before)
    again = devices([a_slice(a_device(1), a_device(0), generation=1)], [claim])[NODE].after(gone)

    assert gone.claimed == before.claimed == again.claimed == ClaimedGPUs(frozenset({"GPU-1"}))
    assert (gone.pool.gpus, again.pool) == (before.pool.gpus, before.pool)
    assert gone.pool.missing
    assert not gone.current.claimed.uuids


def test_a_claim_follows_the_name_of_its_device_when_gpus_are_renumbered():
    before = devices([TWO], [a_claim("gpu-1")])[NODE]
    swapped = a_slice(a_device(0, name="gpu-1"), a_device(1, name="gpu-0"))
    after = devices([swapped], [a_claim("gpu-1")])[NODE].after(before)
    assert after.claimed == ClaimedGPUs(frozenset({"GPU-0"}))


@pytest.mark.parametrize(
    ("rule", "tainted"),
    [
        (a_rule("fault", "", "NoExecute", driver="gpu.nvidia.com", device="gpu-1"), ["gpu-1"]),
        (a_rule("fault", "", "NoSchedule", pool=NODE), ["gpu-0", "gpu-1"]),
        (a_rule("fault", "", "NoSchedule", pool="node-b"), []),
        (a_rule("fault", "", "NoSchedule", driver="other.example"), []),
        (a_rule("fault", "", "None", pool=NODE), []),
        (a_rule("fault", "", "NoSchedule"), []),
        (a_rule(keys.PLACED, "", "NoSchedule", pool=NODE), []),
    ],
    ids=["device", "pool", "another pool", "driver", "no effect", "no selector", "our fence"],
)
def test_rules_taint_devices(rule, tainted):
    rules = [read for read in [read_rule(rule)] if read]
    pool = devices_by_node([read_slice(TWO)], [], rules)[NODE].pool
    assert [gpu.name for gpu in pool.gpus if gpu.taint] == tainted


def our_node(**fields):
    cards = (Card(uuid="GPU-0"), Card(uuid="GPU-1"))
    return Node("a", mode=NodeMode.TOPOLOGY, machine=uniform_machine(2), cards=cards, **fields)


def test_claimed_card_of_our_node_takes_no_new_pod():
    node = without_claimed(our_node(), ClaimedGPUs(frozenset({"GPU-1"})))
    assert (node.usable_mask, node.mismatch) == (0b01, None)


@pytest.mark.parametrize(
    "claimed",
    [ClaimedGPUs(frozenset({"GPU-z"})), ClaimedGPUs(unknown=frozenset({GPU_0}))],
    ids=["of no card", "without a UUID"],
)
def test_nothing_is_placed_on_our_node_where_the_claimed_gpu_is_unknown(claimed):
    assert "resource claim" in without_claimed(our_node(), claimed).mismatch


def test_a_device_that_the_pool_lacks_closes_no_gpu_of_a_claims_node():
    node = our_node(pool=DevicePool("a", ("gpu-0", "gpu-1")))
    unknown = frozenset({Device(NODE, NODE, "gpu-9")})
    closed = without_claimed(node, ClaimedGPUs(frozenset({"GPU-1"}), unknown))
    assert (closed.usable_mask, closed.mismatch, len(closed.warnings)) == (0b01, None, 1)


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
    claimed = ClaimedGPUs(frozenset({"GPU-0"}), frozenset({GPU_1}))
    assert without_claimed(Node("a", resources=offered), claimed).resources == left


def test_node_without_claims_is_unchanged():
    node = our_node()
    assert without_claimed(node, ClaimedGPUs()) is node
