import asyncio
import json
import signal
import sys
from pathlib import Path

import pytest
from support.builders import node_object
from support.servers.fake_cluster import FakeCluster
from support.waiting import PATIENCE, until

from linkwise.cluster import keys
from linkwise.views.analysis.job_history import HEADER

ROOT = Path(__file__).parents[3]
PODS = "/api/v1/namespaces/team/pods"


def a_running_pod(name, gpus):
    limits = {keys.NVIDIA_GPU: str(gpus)}
    container = {"name": "c", "resources": {"limits": limits, "requests": {"cpu": "2"}}}
    metadata = {"name": name, "namespace": "team", "creationTimestamp": "1970-01-01T00:01:00Z"}
    return {
        "metadata": metadata,
        "spec": {"nodeName": "gpu", "containers": [container]},
        "status": {"phase": "Running"},
    }


@pytest.fixture
def kubeconfig(tmp_path):
    def write(server):
        config = {
            "current-context": "work",
            "clusters": [{"name": "here", "cluster": {"server": server}}],
            "contexts": [{"name": "work", "context": {"cluster": "here", "user": "ann"}}],
            "users": [{"name": "ann", "user": {"token": "t"}}],
        }
        (tmp_path / "config").write_text(json.dumps(config))
        return str(tmp_path / "config")

    return write


async def test_jobs_are_written_when_they_end_and_the_others_at_ctrl_c(kubeconfig, tmp_path):
    file = tmp_path / "history.csv"
    async with FakeCluster() as api, asyncio.timeout(PATIENCE):
        api.put("/api/v1/nodes/gpu", node_object("gpu", {}, **{keys.NVIDIA_GPU: "8"}))
        api.put(f"{PODS}/a", a_running_pod("a", 2))
        options = ("--watch", "--kubeconfig", kubeconfig(api.url), "--to", str(file))
        command = (sys.executable, "-m", "linkwise.cli", "snapshot", *options)
        process = await asyncio.create_subprocess_exec(
            *command, cwd=ROOT, stderr=asyncio.subprocess.PIPE
        )
        try:
            assert b"the cluster is watched." in await process.stderr.readline()
            assert file.read_text() == HEADER

            api.put(f"{PODS}/b", a_running_pod("b", 4))
            api.remove(f"{PODS}/a")
            await until(lambda: len(file.read_text().splitlines()) == 2)
            process.send_signal(signal.SIGINT)
            await process.wait()
        finally:
            if process.returncode is None:
                process.kill()

    assert process.returncode == 0
    assert await process.stderr.read() == b""
    first, second = file.read_text().splitlines()[1:]
    assert first.startswith("1,60.0,")
    assert first.endswith(",1,2,1000,2000,0")
    assert second == "2,60.0,,1,4,1000,2000,0"


def test_a_file_that_cannot_be_written_is_refused(linkwise, kubeconfig):
    config = kubeconfig("http://127.0.0.1:1")

    ran = linkwise("snapshot", "--watch", "--kubeconfig", config, "--to", "none/history.csv")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("linkwise: none/history.csv: no such file or directory.")


def test_a_command_with_a_wrong_kubeconfig_leaves_no_file(linkwise, tmp_path):
    file = tmp_path / "history.csv"

    ran = linkwise("snapshot", "--watch", "--kubeconfig", str(tmp_path / "none"), "--to", str(file))

    assert (ran.code, ran.out) == (2, "")
    assert not file.exists()


@pytest.mark.parametrize("words", [["dashboard"], ["snapshot", "--watch"]], ids=" ".join)
def test_a_command_that_needs_unix_says_so_on_windows(linkwise, monkeypatch, words):
    monkeypatch.setattr(sys, "platform", "win32")

    ran = linkwise(*words)

    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"linkwise: linkwise {' '.join(words)} runs on Linux and macOS.")
