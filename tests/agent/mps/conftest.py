import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from agent.mps.daemon import DaemonSettings
from agent.mps.limits import Directories

CUDA = Path(__file__).with_name("standin_cuda.c")
STANDIN = Path(__file__).with_name("standin_control.py")


def write_program(folder, name, text):
    program = folder / name
    program.write_text(text)
    program.chmod(0o755)


@pytest.fixture
def node(tmp_path):
    """Folders of a node with the stand-in; its daemons are killed at the end."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (tmp_path / "mps/log").mkdir(parents=True)
    write_program(
        programs,
        "nvidia-cuda-mps-control",
        f'#!/bin/sh\nexec {sys.executable} -S -E {STANDIN} "$@"\n',
    )
    write_program(programs, "nvidia-smi", f'#!/bin/sh\necho "$2" >> {tmp_path}/compute-mode\n')
    yield tmp_path
    for file in tmp_path.rglob("nvidia-cuda-mps-control.pid"):
        with suppress(ProcessLookupError, ValueError):
            os.kill(int(file.read_text()), signal.SIGKILL)


@pytest.fixture
def settings(node):
    return DaemonSettings(
        directory=str(node / "mps"),
        others=(Directories(str(node / "other/pipe"), str(node / "other/shm")),),
        path=f"{node / 'bin'}:/usr/bin:/bin",
        private_shared_memory=False,
        command_seconds=30,
        first_delay=0.01,
    )


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs gcc")
    library = tmp_path_factory.mktemp("cuda") / "libcuda.so.1"
    command = [compiler, "-shared", "-fPIC", "-Wall", "-Werror", "-o", library, CUDA]
    subprocess.run(command, check=True)
    return str(library)
