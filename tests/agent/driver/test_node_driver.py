"""The way by which a node's driver is read, while it is installed."""

import os
import shutil
import subprocess

import pytest
from nvml.standin import MACHINE, StandInNVML, compiler, library

from agent.driver.node_driver import NodeDriver
from agent.driver.reading import DriverError
from linkwise.topology.catalogue import entry

SMI = r"""
#include <stdio.h>
#include <string.h>
int main(int n, char **words) {
    if (n < 2) return puts("Driver Version: 535.161.08 CUDA Version: 12.2") < 0;
    if (strcmp(words[1], "topo") == 0) return puts("\tGPU0\tNUMA Affinity\nGPU0\t X \t0") < 0;
    return puts("0, GPU-aa, 00000000:07:00.0, 15360, [N/A], 535.161.08, Tesla T4") < 0;
}
"""


@pytest.fixture
def smi(tmp_path):
    """`nvidia-smi`, linked statically."""
    if os.geteuid() != 0 or compiler() is None:
        pytest.skip("needs root and gcc")
    source, program = tmp_path / "smi.c", tmp_path / "smi"
    source.write_text(SMI)
    argv = [compiler(), "-static", "-o", program, source]
    if subprocess.run(argv, capture_output=True, check=False).returncode:
        pytest.skip("needs a static C library")
    return program


@pytest.fixture
def driver(tmp_path):
    (tmp_path / "host/usr/bin").mkdir(parents=True)
    (tmp_path / "host/usr/lib").mkdir()
    driver = NodeDriver(tmp_path / "host", tmp_path / "sys")
    yield driver
    driver.close()


def test_driver_is_read_by_nvml_or_the_installed_program(tmp_path, driver, smi, monkeypatch):
    with pytest.raises(DriverError, match=r"libnvidia-ml\.so\.1 is not below .*, and there is no"):
        driver.read()

    shutil.copy(smi, tmp_path / "host/usr/bin/nvidia-smi")
    assert [gpu.model for gpu in driver.read().gpus] == ["Tesla T4"]

    stand_in = StandInNVML(tmp_path, entry("dgx1-v100").machine)
    monkeypatch.setenv(MACHINE, str(stand_in.path))
    shutil.copyfile(library(), tmp_path / "host/usr/lib/libnvidia-ml.so.1")
    assert len(driver.read().gpus) == 8


def test_a_library_that_cannot_be_loaded_leaves_the_program(tmp_path, driver, smi):
    (tmp_path / "host/usr/lib/libnvidia-ml.so.1").write_text("not a library")
    shutil.copy(smi, tmp_path / "host/usr/bin/nvidia-smi")

    assert [gpu.model for gpu in driver.read().gpus] == ["Tesla T4"]
