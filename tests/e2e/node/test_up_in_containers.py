"""`NODES=real make up`: a gang in containers, and `make down` after it."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from controlplane.node.cleaner import hierarchies
from controlplane.up import runs
from nvml.standin import compiler

ROOT = Path(__file__).parents[3]
FOURS = ({0, 1, 2, 3}, {4, 5, 6, 7})


def call(module, folder):
    code = f"import pathlib, sys, controlplane.{module} as made; "
    code += f"sys.exit(made.main(pathlib.Path({str(folder)!r})))"
    environment = {**os.environ, "NODES": "real", "PYTHONPATH": str(ROOT / "tests")}
    argv = [sys.executable, "-c", code]
    return subprocess.run(
        argv, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture
def folder(tmp_path, programs_of_node):
    del programs_of_node  # Where they are missing, nothing can be started.
    if compiler() is None:
        pytest.skip("needs gcc")
    folder = tmp_path / "up"
    yield folder
    call("down", folder)


def test_workers_print_one_best_set_and_down_leaves_nothing(folder):
    up = call("up", folder)

    assert (up.returncode, up.stderr) == (0, "")
    workers = re.findall(r"^vgg16-worker-(\d): nvidia(\d) GPU-\S+$", up.stdout, re.MULTILINE)
    assert [number for number, _ in workers] == ["0", "1", "2", "3"]
    # The notebook has a GPU of one half, so index order would take GPUs of both.
    assert {int(gpu) for _, gpu in workers} in FOURS
    assert re.search(r"^vgg16-launcher-\w+, .*=all: no GPUs$", up.stdout, re.MULTILINE)
    export, _, inspect, logs, execute, *_ = re.findall(r"^  (.*)$", up.stdout, re.MULTILINE)
    shell = ["bash", "-c", f"{export}\n{inspect}\n{logs}\n{execute}"]
    pasted = subprocess.run(shell, cwd=ROOT, capture_output=True, text=True, check=False)
    assert "gang default/mpijob-vgg16 (4 pods)" in pasted.stdout
    assert pasted.stdout.count("vgg16-worker-") == 4
    assert "default/notebook" in pasted.stdout
    gpu = dict(workers)["0"]
    assert re.findall(r"^nvidia\d$", pasted.stdout, re.MULTILINE) == [f"nvidia{gpu}"]

    processes = json.loads((folder / "status.json").read_text())["processes"]
    [place, name] = processes[0]["argv"][-2:]
    down = call("down", folder)
    assert (down.returncode, down.stderr) == (0, "")
    assert not any(runs(process["pid"], process["argv"]) for process in processes)
    left = [folder, Path(place), Path("/sys/class/net", name)]
    assert not any(path.exists() for path in (*left, *(root / name for root in hierarchies())))
