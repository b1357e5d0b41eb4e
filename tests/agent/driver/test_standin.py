"""The stand-in NVML library, as a program with nvidia-ml-py sees it."""

import os
import subprocess
import sys

import pytest
from nvml.standin import StandInNVML, compiler

from linkwise.topology.catalogue import entry

pytestmark = pytest.mark.skipif(compiler() is None, reason="needs gcc")

PROGRAM = """
import pynvml as nvml
nvml.nvmlInit()
gpu = nvml.nvmlDeviceGetHandleByIndex(3)
print(nvml.nvmlDeviceGetCount(), nvml.nvmlSystemGetDriverVersion())
print(nvml.nvmlDeviceGetName(gpu), nvml.nvmlDeviceGetPciInfo(gpu).busId)
print(sum(nvml.nvmlDeviceGetNvLinkState(gpu, link) for link in range(6)))
print(*(process.pid for process in nvml.nvmlDeviceGetComputeRunningProcesses(gpu)))
try:
    nvml.nvmlDeviceGetHandleByIndex(0)
except nvml.NVMLError as error:
    print(error)
"""


def test_program_sees_machine_and_faults(tmp_path):
    stand_in = StandInNVML(tmp_path, entry("dgx1-v100").machine)
    stand_in.link_down(3)
    stand_in.set_processes(3, [77, 78])
    stand_in.lose(0)

    environment = {**os.environ, **stand_in.environment()}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True
    )

    assert done.stdout.splitlines() == [
        "8 535.161.08",
        "Tesla V100-SXM2-32GB 00000000:1F:00.0",
        "5",
        "77 78",
        "GPU is lost",
    ]
