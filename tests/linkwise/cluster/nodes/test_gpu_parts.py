import pytest
from hypothesis import given
from hypothesis import strategies as st

from linkwise.cluster.keys import GFD_COUNT, GFD_PRODUCT, GFD_REPLICAS, NVIDIA_GPU
from linkwise.cluster.nodes.gpu_parts import GPUParts, PartKind, parts_of
from linkwise.cluster.nodes.node_reader import read_node
from linkwise.cluster.nodes.node_resources import NodeObject, _NodeStatus
from linkwise.cluster.objects.metadata import Metadata
from linkwise.cluster.sharing_keys import (
    GFD_SHARING,
    GFD_SLICES,
    GKE_CLIENTS,
    GKE_PARTITION,
    GKE_SHARING,
    HAMI_REGISTER,
    MIG_CONFIG,
    MIG_STATE,
    MIG_STRATEGY,
)

REGISTER, REGISTER_BEFORE = HAMI_REGISTER
T4 = {GFD_COUNT: "1", GFD_REPLICAS: "4", GFD_PRODUCT: "Tesla-T4-SHARED"}
TWO_CARDS = "GPU-1,10,15360,100,NVIDIA-Tesla T4,0,true:GPU-2,10,15360,100,NVIDIA-Tesla T4,0,true:"
JSON_CARD = '[{"id": "GPU-1", "count": 10, "devmem": 15360, "type": "NVIDIA-Tesla T4"}]'


def replicas(count, cards):
    return GPUParts(PartKind.REPLICA, count, cards)


def partitions(count):
    return GPUParts(PartKind.PARTITION, count, None)


@pytest.mark.parametrize(
    ("labels", "annotations", "offered", "parts"),
    [
        pytest.param(T4, {}, 4, replicas(4, 1), id="time slicing"),
        pytest.param({GFD_REPLICAS: "2"}, {}, 8, replicas(8, 4), id="replicas alone"),
        pytest.param({GFD_COUNT: "2"}, {}, 8, replicas(8, 2), id="fewer GPUs than are offered"),
        pytest.param({GFD_SHARING: "mps", GFD_COUNT: "1"}, {}, 10, replicas(10, 1), id="MPS"),
        pytest.param(
            {GFD_COUNT: "8", GFD_REPLICAS: "1", GFD_SHARING: "none"}, {}, 8, None, id="whole GPUs"
        ),
        pytest.param({}, {}, 8, None, id="no labels"),
        pytest.param(T4, {}, 0, None, id="nothing offered"),
        pytest.param(
            {GFD_COUNT: "4", GFD_PRODUCT: "NVIDIA-A30-MIG-1g.6gb", MIG_STRATEGY: "single"},
            {},
            4,
            partitions(4),
            id="MIG single",
        ),
        pytest.param(
            {GFD_COUNT: "2", GFD_PRODUCT: "NVIDIA-A30", MIG_STRATEGY: "single"},
            {},
            2,
            None,
            id="MIG single, no GPU divided",
        ),
        pytest.param(
            {MIG_STRATEGY: "single", MIG_CONFIG: "all-1g.10gb", MIG_STATE: "success"},
            {},
            7,
            partitions(7),
            id="MIG manager",
        ),
        pytest.param(
            {MIG_STRATEGY: "single", MIG_CONFIG: "all-disabled", MIG_STATE: "success"},
            {},
            8,
            None,
            id="MIG manager, off",
        ),
        pytest.param(
            {MIG_STRATEGY: "single", GFD_SLICES: "1"}, {}, 7, partitions(7), id="MIG slices"
        ),
        pytest.param(
            {MIG_STRATEGY: "mixed", GFD_COUNT: "2", GFD_PRODUCT: "NVIDIA-A100-SXM4-40GB"},
            {},
            2,
            None,
            id="MIG mixed",
        ),
        pytest.param(
            {
                GFD_COUNT: "7",
                GFD_REPLICAS: "2",
                GFD_PRODUCT: "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb-SHARED",
            },
            {},
            14,
            replicas(14, None),
            id="replicas of partitions",
        ),
        pytest.param({}, {REGISTER: TWO_CARDS}, 20, replicas(20, 2), id="HAMi"),
        pytest.param({}, {REGISTER_BEFORE: TWO_CARDS}, 20, replicas(20, 2), id="4paradigm"),
        pytest.param({}, {REGISTER: JSON_CARD}, 10, replicas(10, 1), id="HAMi 2.5"),
        pytest.param(
            {}, {REGISTER: TWO_CARDS.replace(",10,", ",1,")}, 2, None, id="HAMi, undivided"
        ),
        pytest.param({}, {REGISTER: "garbage"}, 4, None, id="an unreadable annotation"),
        pytest.param(
            {GKE_SHARING: "time-sharing", GKE_CLIENTS: "3"}, {}, 6, replicas(6, 2), id="GKE"
        ),
        pytest.param({GKE_PARTITION: "1g.5gb"}, {}, 7, partitions(7), id="GKE, MIG"),
        pytest.param({}, {}, 17, GPUParts(PartKind.UNKNOWN, 17, None), id="more than any machine"),
    ],
)
def test_parts_are_what_labels_and_annotations_state(labels, annotations, offered, parts):
    assert parts_of(labels, annotations, offered, renamed=False) == parts


def test_replicas_under_a_name_of_their_own_leave_whole_gpus():
    assert parts_of({GFD_REPLICAS: "4"}, {}, 2, renamed=True) is None


@given(
    st.dictionaries(st.sampled_from([*T4, GFD_SHARING, MIG_STRATEGY, GKE_CLIENTS]), st.text()),
    st.text() | st.text(alphabet='GPU-0123456789,:[]{}"idcount'),
    st.integers(0, 1000),
)
def test_any_text_gives_parts_of_at_most_as_many_cards(labels, annotation, offered):
    parts = parts_of(labels, {REGISTER: annotation}, offered, renamed=False)

    assert parts is None or parts.count == offered
    assert parts is None or parts.words


def test_a_longer_annotation_is_not_read():
    card = "GPU-1,10,15360,100,NVIDIA-Tesla T4,0,true:"

    assert parts_of({}, {REGISTER: card * (64 * 1024)}, 4, renamed=False) is None


def test_a_node_has_its_cards_and_no_whole_gpus():
    raw = NodeObject(
        metadata=Metadata(name="n", labels=T4), status=_NodeStatus(allocatable={NVIDIA_GPU: "4"})
    )

    node = read_node(raw)

    assert (node.parts, len(node.cards)) == (replicas(4, 1), 1)
    assert node.is_counted
