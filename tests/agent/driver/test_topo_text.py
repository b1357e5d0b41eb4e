"""Readings from the texts of nvidia-smi."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.strategies import machines

from agent.driver.machine import machine_of
from agent.driver.reading import DriverError
from agent.driver.topo_text import processes_in, read_texts
from linkwise.topology.machine import Level, Machine

BANNER = "| NVIDIA-SMI 535.161.08   Driver Version: 535.161.08   CUDA Version: 12.2     |"
QUERY = (
    "0, GPU-aa, 00000000:07:00.0, 16384, [N/A], 535.161.08, Tesla V100-SXM2-16GB\n"
    "1, GPU-bb, 00000000:0F:00.0, 16384, Enabled, 535.161.08, Tesla V100-SXM2-16GB\n"
)
TOPO = "\tGPU0\tGPU1\tNUMA Affinity\nGPU0\t X \tNV2\t0\nGPU1\tNV2\t X \t1\n"


def topo_of(machine: Machine) -> str:
    """Return a machine as `nvidia-smi topo -m` prints it."""
    names = [f"GPU{i}" for i in range(machine.n)]
    lines = ["\t".join(["", *names, "NUMA Affinity"])]
    for i, name in enumerate(names):
        cells = [_cell(machine, i, j) for j in range(machine.n)]
        lines.append("\t".join([name, *cells, str(machine.gpus[i].numa)]))
    return "\n".join(lines)


def _cell(machine: Machine, i: int, j: int) -> str:
    if i == j:
        return " X "
    count = machine.links[i][j]
    return f"NV{count}" if count else (machine.levels[i][j] or Level.SYS).name


def query_of(machine: Machine) -> str:
    return "\n".join(
        f"{i}, GPU-{i}, 00000000:{i:02X}:00.0, 16160, [N/A], 535.1, NVIDIA L4"
        for i in range(machine.n)
    )


def test_texts_give_identity_links_and_versions() -> None:
    reading = read_texts(QUERY, TOPO, BANNER)

    one, other = reading.gpus
    assert (reading.driver, reading.cuda) == ("535.161.08", "12.2")
    assert (one.uuid, one.bus_id, one.memory) == ("GPU-aa", "0000:07:00.0", 16 << 30)
    assert (one.numa, other.numa) == (0, 1)
    assert (one.usable, other.usable) == (True, False)
    assert other.bus_id == "0000:0f:00.0"
    assert reading.links == ((0, 2), (2, 0))
    assert not reading.switched
    assert machine_of(reading, ()).model == "Tesla V100-SXM2-16GB"


def test_version_of_cuda_may_be_missing() -> None:
    assert read_texts(QUERY, TOPO, "").cuda == ""


def test_more_links_than_a_gpu_has_end_at_a_switch() -> None:
    assert read_texts(QUERY, TOPO.replace("NV2", "NV8"), "").switched


@pytest.mark.parametrize(
    ("query", "topo", "message"),
    [
        pytest.param("No devices were found\n", TOPO, "lists no GPUs", id="no GPU"),
        pytest.param("", TOPO, "lists no GPUs", id="empty"),
        pytest.param(QUERY, "Failed to initialize NVML", "topo -m", id="no matrix"),
        pytest.param(QUERY + QUERY, TOPO, "4 GPUs, its matrix has 2", id="other GPUs"),
    ],
)
def test_texts_that_do_not_describe_the_gpus_are_refused(
    query: str, topo: str, message: str
) -> None:
    with pytest.raises(DriverError, match=message):
        read_texts(query, topo, BANNER)


def test_processes_of_known_gpus() -> None:
    gpus = read_texts(QUERY, TOPO, BANNER).gpus

    assert processes_in("GPU-bb, 42\nGPU-zz, 7\n\nGPU-aa, 9\n", gpus) == ((1, 42), (0, 9))


@given(machine=machines())
def test_any_machine_is_read_from_its_text(machine: Machine) -> None:
    reading = read_texts(query_of(machine), topo_of(machine), "")

    assert reading.links == machine.links
    assert all(
        reading.levels[i][j] == (machine.levels[i][j] or Level.SYS)
        for i in range(machine.n)
        for j in range(machine.n)
        if i != j and not machine.links[i][j]
    )
    assert [gpu.numa for gpu in reading.gpus] == [gpu.numa for gpu in machine.gpus]


@given(query=st.text(max_size=200), topo=st.text(max_size=200), banner=st.text(max_size=60))
def test_any_text_is_read_or_refused(query: str, topo: str, banner: str) -> None:
    with suppress(DriverError):
        read_texts(query, topo, banner)
    with suppress(DriverError):
        read_texts(QUERY, topo, banner)
    with suppress(DriverError):
        read_texts(query, TOPO, banner)
