"""Edits of single GPUs in NVIDIA's CDI specification."""

import itertools
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.gpu_readings import gpu, reading
from support.nvidia_cdi import gpu_edits, nvidia_spec

from agent.binding.cdi_spec import Spec, SpecError
from agent.binding.gpu_edits import edits_of, problem_of

NAMINGS = [
    pytest.param(("index",), id="by index"),
    pytest.param(("uuid",), id="by UUID"),
    pytest.param(("index", "uuid"), id="by both"),
    pytest.param(("type-index",), id="by type and index"),
]
# Minor numbers follow the order in which the kernel found the GPUs, indices that of the bus.
GPUS = tuple(gpu(i, minor=minor) for i, minor in enumerate((2, 3, 0, 1)))


def spec(value):
    return msgspec.convert(value, Spec)


def nodes(edits):
    return {node.path for node in edits.device_nodes if "dri" not in node.path}


COMMON = {"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset"}


@pytest.mark.parametrize("naming", NAMINGS)
@pytest.mark.parametrize("count", range(1, 5))
def test_a_container_has_exactly_the_device_nodes_of_its_gpus(naming, count):
    nvidia = spec(nvidia_spec(GPUS, naming=naming))
    for chosen in itertools.combinations(GPUS, count):
        assert nodes(edits_of(nvidia, chosen)) == COMMON | {
            f"/dev/nvidia{gpu.minor}" for gpu in chosen
        }


@pytest.mark.parametrize("naming", NAMINGS)
def test_a_gpu_without_a_known_minor_number_is_found_by_its_name(naming):
    nvidia = spec(nvidia_spec(GPUS, naming=naming))

    assert nodes(edits_of(nvidia, [replace(GPUS[1], minor=None)])) == COMMON | {"/dev/nvidia3"}


def test_a_specification_with_old_indices_gives_the_gpu_of_the_device_node():
    # GPU 0 fell off the bus after the specification was made, so the others moved up.
    nvidia = spec(nvidia_spec(GPUS, naming=("index",)))
    moved = replace(GPUS[1], i=0)

    assert nodes(edits_of(nvidia, [moved])) == COMMON | {"/dev/nvidia3"}


def test_the_edits_of_all_containers_come_first_and_every_edit_once():
    edits = edits_of(spec(nvidia_spec(GPUS)), GPUS[:2])

    commands = [hook.args[1] for hook in edits.hooks]
    assert commands == [
        "enable-cuda-compat",
        "update-ldcache",
        "create-symlinks",
        "create-symlinks",
    ]
    assert len(edits.mounts) == 2


@given(st.lists(st.sampled_from(GPUS), min_size=1, max_size=8))
def test_a_repeated_gpu_changes_nothing(chosen):
    nvidia = spec(nvidia_spec(GPUS))

    assert edits_of(nvidia, chosen) == edits_of(nvidia, dict.fromkeys(chosen))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        pytest.param({"devices": []}, "no device", id="no devices"),
        pytest.param(
            {"devices": [{"name": "all", "containerEdits": gpu_edits(2)}]},
            None,
            id="all of one GPU is that GPU",
        ),
        pytest.param(
            {"devices": [{"name": "GPU-0", "containerEdits": gpu_edits(1)}]},
            "no device",
            id="the UUID has the node of another GPU",
        ),
        pytest.param(
            {
                "devices": [
                    {
                        "name": "0",
                        "containerEdits": {
                            "deviceNodes": [{"path": "/dev/nvidia2"}, {"path": "/dev/nvidia3"}]
                        },
                    }
                ]
            },
            "no device",
            id="a device with two GPUs",
        ),
        pytest.param(
            {
                "devices": [
                    {
                        "name": "0",
                        "containerEdits": {
                            "deviceNodes": [{"path": "/dev/nvidia2", "hostPath": "/dev/nvidia3"}]
                        },
                    }
                ]
            },
            "no device",
            id="a node that is another one on the host",
        ),
        pytest.param(
            {"containerEdits": gpu_edits(1)}, "every container", id="a GPU for every container"
        ),
    ],
)
def test_a_specification_that_would_give_another_gpu_is_refused(change, reason):
    nvidia = spec({**nvidia_spec(GPUS), **change})

    if reason is None:
        assert "/dev/nvidia2" in nodes(edits_of(nvidia, GPUS[:1]))
    else:
        with pytest.raises(SpecError, match=reason):
            edits_of(nvidia, GPUS[:1])


@pytest.mark.parametrize(
    ("now", "problem"),
    [
        pytest.param(reading(), None, id="as it was"),
        pytest.param(reading(driver="550.90.07"), "535.161.08, and 550.90.07", id="new driver"),
        pytest.param(reading(*map(gpu, range(5))), "GPU 4", id="new GPU"),
        pytest.param(
            reading(*map(gpu, range(4)), gpu(4, fault="lost")), None, id="new GPU with a fault"
        ),
        pytest.param(reading(*map(gpu, range(4)), gpu(4, mig=True)), None, id="new GPU with MIG"),
        pytest.param(
            reading(gpu(0, uuid="GPU-new"), *map(gpu, range(1, 4))), None, id="replaced, by index"
        ),
        pytest.param(
            reading(gpu(0, minor=1), gpu(1, minor=0)), "GPU 0", id="minor numbers exchanged"
        ),
    ],
)
def test_a_specification_fits_the_driver_that_it_was_made_for(now, problem):
    found = problem_of(spec(nvidia_spec(tuple(map(gpu, range(4))))), now)

    assert found is None if problem is None else problem in found
