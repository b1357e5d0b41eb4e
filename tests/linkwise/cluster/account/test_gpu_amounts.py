import pytest
from support.builders import a_node, dgx1_v100

from linkwise.cluster import keys
from linkwise.cluster.account.gpu_amounts import GPUClass, gpu_amounts
from linkwise.cluster.account.node_ledger import Holding, NodeLedger
from linkwise.cluster.allocations.gpus import Counted, Exact, GPUShare


def held(node, *pods):
    """Return the ledger of a node with pods, each a namespace and its GPUs."""
    ledger = NodeLedger.empty(node)
    for number, (namespace, gpus) in enumerate(pods):
        ledger = ledger.hold(Holding(f"{namespace}/{number}", str(number), gpus))
    return ledger


def test_whole_gpus_of_a_namespace_add_up_over_nodes():
    machine = dgx1_v100()
    first = held(a_node("a", machine), ("x", Exact((GPUShare(0), GPUShare(3)))))
    second = held(a_node("b", machine), ("x", Exact((GPUShare(1),))), ("y", Exact((GPUShare(0),))))

    assert gpu_amounts([first, second]) == {
        GPUClass("x", keys.GPU_WHOLE, "whole"): 3,
        GPUClass("y", keys.GPU_WHOLE, "whole"): 1,
    }


def test_pods_without_gpus_are_not_counted():
    assert gpu_amounts([held(a_node("a", dgx1_v100()), ("x", Exact()))]) == {}


@pytest.mark.parametrize(
    ("mode", "share", "expected"),
    [
        pytest.param("timeslice", GPUShare(0), ("replica", 1 / 4), id="one of 4 replicas"),
        pytest.param("share", GPUShare(0, mem=4), ("memory", 1 / 4), id="memory"),
        pytest.param("core_mem", GPUShare(0, mem=4, core=50), ("compute", 1 / 2), id="compute"),
        pytest.param(
            "core_mem", GPUShare(0, mem=8, core=10), ("compute", 1 / 2), id="memory is more"
        ),
    ],
)
def test_a_share_is_the_larger_part_of_its_card(mode, share, expected):
    node = a_node("a", dgx1_v100(), mode, card_memory=16)

    (found,) = gpu_amounts([held(node, ("x", Exact((share,))))]).items()

    assert (found[0].share, found[1]) == expected


@pytest.mark.parametrize(("number", "counted"), [(3, 3), (2**70, 8)])
def test_a_pod_counts_as_at_most_the_gpus_of_its_node(number, counted):
    node = a_node("a", dgx1_v100(), "default")

    amounts = gpu_amounts([held(node, ("x", Counted(keys.NVIDIA_GPU, number)))])

    assert amounts == {GPUClass("x", keys.NVIDIA_GPU, "whole"): counted}


def test_shared_gpus_of_nvidias_plugin_count_as_their_part():
    node = a_node("a", dgx1_v100(), "default", resources={keys.NVIDIA_GPU_SHARED: 32})

    amounts = gpu_amounts([held(node, ("x", Counted(keys.NVIDIA_GPU_SHARED, 2)))])

    assert amounts == {GPUClass("x", keys.NVIDIA_GPU_SHARED, "replica"): 0.5}
