"""The machine of a reading, and the bandwidth of its pairs."""

import subprocess
import sys
from dataclasses import replace

import pytest
from support.builders import numa_of

from agent.driver.machine import machine_of, pair_bandwidth
from agent.driver.reading import GPU, DriverReading
from linkwise.topology.catalogue import NAMES, entry
from linkwise.topology.machine import Level, Machine, gpu_records
from linkwise.topology.table import table_of

GIB = 1 << 30


def reading(*gpus, **more):
    n = len(gpus)
    matrices = {
        "levels": ((Level.PIX,) * n,) * n,
        "links": ((0,) * n,) * n,
        "switched": False,
    }
    numbered = tuple(replace(gpu, i=i) for i, gpu in enumerate(gpus))
    return DriverReading("535.161.08", "12.2", numbered, **(matrices | more))


def gpu(model="Tesla T4", memory=15 * GIB, **more):
    return GPU(0, "GPU-1", "0000:07:00.0", model, memory, **more)


@pytest.mark.parametrize("name", NAMES)
def test_pair_bandwidth_is_that_of_the_table(name):
    machine = entry(name).machine
    table = table_of(machine)

    speeds = pair_bandwidth(machine)

    for i in range(machine.n):
        for j in range(machine.n):
            expected = 0 if i == j else table.bandwidth(1 << i | 1 << j)
            assert speeds[i][j] == expected, (i, j)


def test_pair_bandwidth_of_gpus_with_fewer_links_to_the_switch():
    machine = Machine(
        links=((0, 17, 0), (17, 0, 0), (0, 0, 0)),
        levels=((Level.NODE,) * 3,) * 3,
        gpus=gpu_records((0,) * 3),
        switched=True,
    )
    table = table_of(machine)

    assert pair_bandwidth(machine)[0][1] == table.bandwidth(0b011) == 340
    assert pair_bandwidth(machine)[0][2] == table.bandwidth(0b101) == 10


def test_memory_is_rounded_down():
    assert machine_of(reading(gpu(memory=81559 << 20)), ()).memory == (79,)


def test_slowest_nvlink_of_different_models_counts():
    machine = machine_of(reading(gpu("NVIDIA A10"), gpu("NVIDIA A100-SXM4-40GB")), ())

    assert machine.model is None
    assert machine.constants.nvlink == 12
    assert machine.warnings[-1] == "GPUs of different models: NVIDIA A10, NVIDIA A100-SXM4-40GB"


def test_model_of_a_gpu_without_an_answer_is_not_missed():
    machine = machine_of(reading(gpu(), gpu("", 0, fault="GPU is lost")), ())

    assert machine.model == "Tesla T4"
    assert machine.warnings == ()


def test_gpus_without_numa_nodes_are_on_one():
    assert numa_of(machine_of(reading(gpu(), gpu()), ())) == (0, 0)


def test_gpu_without_a_numa_node_is_on_one_of_its_own():
    machine = machine_of(reading(gpu(numa=3), gpu()), ())

    assert numa_of(machine) == (3, -1)
    assert machine.warnings == ("the NUMA node of GPU1 is unknown: counted as one of its own",)


def test_agent_reads_machines_without_numpy():
    program = (
        "import sys;"
        "import agent.driver.machine, agent.driver.health, agent.driver.nvml, agent.driver.smi;"
        "print({'numpy', 'highspy', 'pydantic'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "set()\n"
