"""Properties that all variants of the GPUs of a pod have in common."""

import pytest
from support.builders import exact

from linkwise.cluster.allocations.gpus import NO_GPUS, Counted, Exact, GPUShare, number_counted
from linkwise.cluster.keys import NVIDIA_GPU, NVIDIA_GPU_SHARED

COUNTED = Counted(NVIDIA_GPU, 3)


@pytest.mark.parametrize(
    ("gpus", "number", "indices", "counted"),
    [
        pytest.param(NO_GPUS, 0, (), 0, id="none"),
        pytest.param(exact(5, 2), 2, (2, 5), 0, id="whole"),
        pytest.param(exact(1, 0, 1), 3, (0, 1, 1), 0, id="replicas"),
        pytest.param(Exact((GPUShare(4, mem=8, core=50),)), 1, (4,), 0, id="a share"),
        pytest.param(COUNTED, 3, (), 3, id="counted"),
    ],
)
def test_gpus_have_a_number_and_known_ones_have_indices(gpus, number, indices, counted):
    assert (len(gpus), gpus.indices, number_counted(gpus)) == (number, indices, counted)
    assert bool(gpus) == (number > 0)


def test_counted_gpus_are_of_one_resource():
    assert number_counted(COUNTED, NVIDIA_GPU) == 3
    assert number_counted(COUNTED, NVIDIA_GPU_SHARED) == 0
