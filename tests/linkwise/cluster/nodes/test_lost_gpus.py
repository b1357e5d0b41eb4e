"""GPUs that claims and records of pods name, and that a node does not list."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.dra import a_claim, a_device, a_slice, read_claim, read_slice

from linkwise.cluster import keys
from linkwise.cluster.nodes.claims_node import read_claims_node
from linkwise.cluster.nodes.device_pool import gpu_pool, pools_of
from linkwise.cluster.nodes.lost_gpus import ExpectedGPUs, RecordedGPU, with_lost_cards
from linkwise.cluster.nodes.node import Card, MachineSource, Node
from linkwise.cluster.nodes.node_devices import devices_of_node
from linkwise.cluster.nodes.node_resources import NodeObject
from linkwise.cluster.objects.metadata import Metadata
from linkwise.topology.catalogue import entry
from linkwise.topology.machine import GPU, MAX_GPUS, Level, with_unlinked

NODE = "node-a"
EIGHT = entry("dgx-h100").machine


def pool_of(present, *, recorded=(), devices=(), minors=None, last=None):
    """Return the GPUs of a machine of eight.

    Args:
        present: Indices of the GPUs that its slices have.
        recorded: Indices of GPUs in records.
        devices: Numbers of devices that claims hold.
        minors: Whether devices are numbered again.
        last: The last GPUs.
    """
    raw = [a_device(i, name=f"gpu-{n if minors else i}") for n, i in enumerate(sorted(present))]
    expected = ExpectedGPUs(
        tuple(RecordedGPU(i, f"GPU-{i}") for i in recorded),
        frozenset(f"gpu-{n}" for n in devices),
    )
    return gpu_pool(NODE, pools_of([read_slice(a_slice(*raw))])[NODE], last, expected)


def listed(pool):
    return [(gpu.name, gpu.uuid) for gpu in pool.gpus]


ALL = [(f"gpu-{i}", f"GPU-{i}") for i in range(8)]
WITHOUT_3 = (0, 1, 2, 4, 5, 6, 7)


@pytest.mark.parametrize(
    ("fields", "name", "uuid"),
    [
        ({"recorded": [3]}, "GPU-3", "GPU-3"),
        ({"devices": [3]}, "gpu-3", None),
        ({"recorded": [3], "devices": [3]}, "gpu-3", "GPU-3"),
        ({"recorded": range(8), "devices": range(8)}, "gpu-3", "GPU-3"),
    ],
    ids=["a record", "a claim", "both", "of every GPU"],
)
def test_a_gpu_that_pods_have_and_slices_lack_is_lost_at_its_place(fields, name, uuid):
    pool = pool_of(WITHOUT_3, **fields)
    assert listed(pool) == [*ALL[:3], (name, uuid), *ALL[4:]]
    assert pool.lost == {name}
    assert pool_of(range(8), last=pool, **fields) == pool_of(range(8))


def test_where_devices_are_numbered_again_the_missing_device_has_the_missing_uuid():
    pool = pool_of(WITHOUT_3, minors=True, recorded=range(8), devices=range(8))
    assert [gpu.uuid for gpu in pool.gpus] == [f"GPU-{i}" for i in range(8)]
    assert pool.gpus[3].name == "gpu-7"
    assert pool.lost == {"gpu-7"}


def test_the_machine_of_the_catalogue_has_the_lost_gpu_at_its_place():
    pool = pool_of(WITHOUT_3, recorded=[3], devices=[3])
    metadata = Metadata(name=NODE, labels={keys.NODE_MODE: "topology"})
    node = read_claims_node(NodeObject(metadata=metadata), pool, published=None, machine=None)
    assert node.machine_source is MachineSource.CATALOGUE
    assert node.machine.links == EIGHT.links
    assert [card.faulty for card in node.cards] == [i == 3 for i in range(8)]
    assert len(node.pool.facts) == 8
    assert node.warnings == ("GPU3: the driver's slices do not have gpu-3 now",)


def test_beside_a_whole_machine_a_lost_gpu_has_no_links():
    # One that was replaced while a record still names it.
    pool = pool_of(range(8), recorded=[11])
    metadata = Metadata(name=NODE, labels={keys.NODE_MODE: "topology"})
    node = read_claims_node(NodeObject(metadata=metadata), pool, published=None, machine=None)
    assert node.machine_source is MachineSource.CATALOGUE
    assert node.machine == with_gpus_of(node, with_unlinked(EIGHT, [8]))
    assert [card.faulty for card in node.cards] == [False] * 8 + [True]


def with_gpus_of(node, machine):
    """Return the links of a machine, with the GPUs and speeds of a node's."""
    return type(machine)(
        machine.links,
        machine.levels,
        node.machine.gpus,
        machine.constants,
        machine.switched,
        node.machine.nics,
        machine.model,
        machine.warnings,
    )


@given(
    present=st.sets(st.integers(0, 7), min_size=1),
    minors=st.booleans(),
)
def test_a_reader_without_a_past_finds_what_one_with_a_past_knows(present, minors):
    whole = pool_of(range(8))
    fields = {"recorded": range(8), "devices": range(8), "minors": minors}
    old, new = pool_of(present, last=whole, **fields), pool_of(present, **fields)
    assert listed(old) == listed(new)
    assert old.lost == new.lost
    assert [gpu.uuid for gpu in new.gpus] == [f"GPU-{i}" for i in range(8)]
    # The next reading remembers it, though nobody names it any more.
    assert [gpu.uuid for gpu in pool_of(present, last=new, minors=minors).gpus] == [
        f"GPU-{i}" for i in range(8)
    ]


TEXTS = st.text(max_size=6) | st.integers(0, 20).map("GPU-{}".format)


@given(
    present=st.sets(st.integers(0, 15)),
    recorded=st.lists(st.tuples(st.integers(0, 15), TEXTS), max_size=20),
    devices=st.sets(st.integers(0, 20).map("gpu-{}".format) | st.text(max_size=6), max_size=20),
)
def test_any_records_and_claims_give_a_machine(present, recorded, devices):
    expected = ExpectedGPUs(tuple(RecordedGPU(*one) for one in recorded), frozenset(devices))
    raw = [a_device(i) for i in present]
    pools = pools_of([read_slice(a_slice(*raw))])
    pool = gpu_pool(NODE, pools[NODE], None, expected)
    names = [gpu.name for gpu in pool.gpus]
    assert len(set(names)) == len(names) <= MAX_GPUS
    assert len({gpu.uuid for gpu in pool.gpus if gpu.uuid}) == sum(
        gpu.uuid is not None for gpu in pool.gpus
    )
    kept = [gpu.name for gpu in pool.gpus if gpu.name not in pool.lost]
    assert kept == [f"gpu-{i}" for i in sorted(present)]
    again = gpu_pool(NODE, pools[NODE], pool, expected)
    assert [gpu.name for gpu in again.gpus if gpu.name not in again.lost] == kept
    assert len(again.gpus) <= MAX_GPUS


def test_a_new_gpu_may_be_in_the_slot_of_one_whose_slot_is_not_known():
    lost = pool_of(WITHOUT_3, recorded=[3])
    raw = [a_device(i) for i in WITHOUT_3] + [a_device(3, uuid="GPU-new")]
    pool = gpu_pool(NODE, pools_of([read_slice(a_slice(*raw))])[NODE], lost)
    assert [gpu.uuid for gpu in pool.gpus].index("GPU-new") == 3
    assert (len(pool.gpus), pool.lost) == (8, frozenset())


def test_a_mig_device_that_is_gone_is_no_lost_gpu():
    held = a_claim("gpu-0-mig-9-0-4")
    found = devices_of_node(NODE, (read_slice(a_slice(a_device(0))),), (read_claim(held),), ())
    assert (len(found.pool.gpus), found.pool.lost) == (1, frozenset())


# ---- Nodes of our agent.

FOUR = entry("v100x4-p3").machine


def agent_node(uuids=("GPU-0", "GPU-1", "GPU-2", "GPU-4")):
    return Node(
        NODE,
        machine=FOUR,
        machine_source=MachineSource.AGENT,
        cards=tuple(Card(uuid=uuid, memory=16) for uuid in uuids),
    )


def test_a_gpu_that_an_agent_does_not_publish_comes_last():
    node = with_lost_cards(agent_node(), [RecordedGPU(4, "GPU-4"), RecordedGPU(3, "GPU-3")])
    assert [card.uuid for card in node.cards] == ["GPU-0", "GPU-1", "GPU-2", "GPU-4", "GPU-3"]
    assert [card.faulty for card in node.cards] == [False] * 4 + [True]
    assert [row[:4] for row in node.machine.links[:4]] == list(FOUR.links)
    assert node.machine.links[4] == (0,) * 5
    assert node.usable_mask == 0b1111
    assert "GPU4: pods have GPU-3" in node.warnings[0]


@pytest.mark.parametrize(
    ("node", "recorded"),
    [
        (agent_node(), [RecordedGPU(0, "GPU-0")]),
        (agent_node(), [RecordedGPU(0, "GPU'")]),
        (agent_node((None,) * 4), [RecordedGPU(0, "GPU-9")]),
        (Node(NODE), [RecordedGPU(0, "GPU-9")]),
    ],
    ids=["listed", "no UUID", "no UUIDs published", "no GPUs"],
)
def test_other_nodes_stay_as_they_are(node, recorded):
    assert with_lost_cards(node, recorded) is node


def test_an_unlinked_gpu_changes_no_link_of_the_others():
    machine = with_unlinked(EIGHT, [0, 4])
    others = [i for i in range(10) if i not in {0, 4}]
    assert tuple(tuple(machine.links[i][j] for j in others) for i in others) == EIGHT.links
    assert tuple(tuple(machine.levels[i][j] for j in others) for i in others) == EIGHT.levels
    assert machine.links[4] == (0,) * 10
    assert set(machine.levels[0]) == {Level.UNKNOWN}
    assert machine.gpus[4] == GPU(EIGHT.gpus[0].numa, memory=EIGHT.gpus[0].memory)
