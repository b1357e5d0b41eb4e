"""`make up` and `make down`, in a folder of the test's own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]


def call(module, folder, **environment):
    code = f"import pathlib, sys, controlplane.{module} as made; "
    code += f"sys.exit(made.main(pathlib.Path({str(folder)!r})))"
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=TESTS,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )


def runs(process):
    try:
        line = Path(f"/proc/{process['pid']}/cmdline").read_bytes()
    except OSError:
        return False
    return line.startswith(process["argv"][0].encode())


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "up"
    yield folder
    call("down", folder)


def test_what_up_starts_goes_on_and_down_leaves_nothing_of_it(plane, folder):
    up = call("up", folder, NODES="3", MACHINE="dgx-a100")
    assert (up.returncode, up.stderr) == (0, "")
    processes = json.loads((folder / "status.json").read_text())["processes"]
    assert [one["name"] for one in processes][:2] == ["etcd", "kube-apiserver"]
    assert all(runs(one) for one in processes)
    kubectl = [plane.site.binaries["kubectl"], f"--kubeconfig={folder / 'kubeconfig'}"]
    nodes = subprocess.check_output([*kubectl, "get", "nodes", "--output=name"], text=True)
    assert nodes.split() == ["node/gpu-0", "node/gpu-1", "node/gpu-2"]
    down = call("down", folder)
    assert (down.returncode, down.stderr) == (0, "")
    assert not any(runs(one) for one in processes)
    assert not folder.exists()


def test_a_second_up_says_that_the_first_is_there(folder):
    folder.mkdir()
    up = call("up", folder)
    assert (up.returncode, up.stderr.count("\n")) == (1, 1)
    assert "is there already" in up.stderr


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        pytest.param({"NODES": "few"}, "NODES=few is no number", id="count"),
        pytest.param({"MACHINE": "abacus"}, "'abacus'", id="machine"),
        pytest.param({"MODE": "best"}, "mode: must be 'default'", id="mode"),
    ],
)
def test_nodes_that_cannot_be_are_told_in_one_line_and_nothing_starts(folder, asked, told):
    up = call("up", folder, **asked)
    assert (up.returncode, up.stdout, up.stderr.count("\n")) == (1, "", 1)
    assert told in up.stderr
    assert not folder.exists()
