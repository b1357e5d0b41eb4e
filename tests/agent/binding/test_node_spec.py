"""NVIDIA's CDI specification of a node."""

import asyncio
import os
import sys
from pathlib import Path

import pytest
from support.gpu_readings import gpu, reading
from support.nvidia_cdi import as_yaml, nvidia_spec
from support.waiting import PATIENCE, until

from agent.binding.node_spec import NodeSpec, Toolkit
from linkwise.runtime.process.backoff import Backoff

FOUR = reading()


class Node:
    """The file system of a node with a stand-in toolkit."""

    def __init__(self, root):
        self.root = root
        self.backoff = Backoff(0.05, 600, lambda: None)
        self.etc, self.run = root / "etc/cdi", root / "var/run/cdi"
        self.program = root / "nvidia-ctk"
        self.output = root / "out/nvidia.yaml"
        for folder in (self.etc, self.run):
            folder.mkdir(parents=True)

    def toolkit(self, script):
        self.program.write_text(f"#!{sys.executable}\nimport sys, time, pathlib\n{script}\n")
        self.program.chmod(0o755)

    def write(self, path, spec, age=0):
        path.write_bytes(spec if isinstance(spec, bytes) else as_yaml(spec))
        os.utime(path, (1000 - age, 1000 - age))

    def spec(self, timeout=30):
        toolkit = Toolkit(Path("/"), self.output, str(self.program), timeout)
        return NodeSpec((self.etc, self.run), toolkit, self.backoff)


@pytest.fixture
def node(tmp_path):
    return Node(tmp_path)


WRITES = """
calls = pathlib.Path(sys.argv[0]).with_name("calls")
calls.write_text(calls.read_text() + "x" if calls.exists() else "x")
output = [arg.partition("=")[2] for arg in sys.argv if arg.startswith("--output=")][0]
source = pathlib.Path(sys.argv[0]).with_name("generated")
pathlib.Path(output).write_bytes(source.read_bytes())
"""


def calls(node):
    path = node.root / "calls"
    return len(path.read_text()) if path.exists() else 0


async def test_the_newest_specification_that_fits_is_used(node):
    node.write(node.etc / "nvidia.yaml", nvidia_spec(FOUR.gpus, version="0.5.0"), age=5)
    node.write(node.run / "nvidia.yaml", nvidia_spec(FOUR.gpus, version="0.6.0"), age=3)
    node.write(node.run / "old.yaml", nvidia_spec(FOUR.gpus, driver="1.2.3"))
    node.write(node.run / "other.yaml", {**nvidia_spec(FOUR.gpus), "kind": "other.com/gpu"})
    node.write(node.run / "broken.json", b"{")
    node.write(node.run / "readme.txt", b"{")
    found = node.spec()
    await found.refresh(FOUR)

    assert found.spec.cdi_version == "0.6.0"
    assert found.reason == ""


async def test_a_changed_specification_is_read_again(node):
    path = node.etc / "nvidia.yaml"
    node.write(path, nvidia_spec(FOUR.gpus), age=5)
    found = node.spec()
    await found.refresh(FOUR)
    node.write(path, nvidia_spec(FOUR.gpus, version="1.0.0"))
    await found.refresh(FOUR)

    assert found.spec.cdi_version == "1.0.0"


@pytest.mark.parametrize(
    "existing",
    [
        pytest.param(None, id="none"),
        pytest.param(nvidia_spec(FOUR.gpus, driver="1.2.3"), id="of another driver"),
        pytest.param(nvidia_spec(FOUR.gpus[:3]), id="without a GPU"),
        pytest.param(b"{", id="broken"),
    ],
)
async def test_the_toolkit_writes_a_specification_where_none_fits(node, existing):
    if existing is not None:
        node.write(node.etc / "nvidia.yaml", existing)
    (node.root / "generated").write_bytes(as_yaml(nvidia_spec(FOUR.gpus, version="0.7.0")))
    node.toolkit(WRITES)
    found = node.spec()
    await found.refresh(FOUR)
    await found.refresh(FOUR)

    assert found.spec.cdi_version == "0.7.0"
    assert calls(node) == 1

    again = node.spec()
    await again.refresh(FOUR)
    assert again.spec.cdi_version == "0.7.0"
    assert calls(node) == 1


async def test_a_new_driver_makes_the_toolkit_write_again(node):
    node.toolkit(WRITES)
    found = node.spec()
    for driver in ("535.161.08", "550.90.07"):
        (node.root / "generated").write_bytes(as_yaml(nvidia_spec(FOUR.gpus, driver=driver)))
        await found.refresh(reading(driver=driver))
        assert f"libcuda.so.{driver}" in found.spec.container_edits.mounts[0].host_path


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        pytest.param(None, "cannot be started", id="not installed"),
        pytest.param(
            "print('loading'); sys.exit('no NVML library')", "no NVML library", id="fails"
        ),
        pytest.param("time.sleep(600)", "within 0.5 s", id="hangs"),
        pytest.param("", "no CDI specification", id="writes nothing"),
    ],
)
async def test_without_a_specification_the_reason_has_the_remedy(node, script, reason):
    if script is not None:
        node.toolkit(script)
    found = node.spec(timeout=0.5 if "within" in reason else 30)
    await found.refresh(FOUR)

    assert found.spec is None
    assert reason in found.reason
    assert "install NVIDIA's container toolkit" in found.reason


async def test_the_reason_names_the_file_that_does_not_fit(node):
    node.write(node.etc / "nvidia.yaml", nvidia_spec(FOUR.gpus, driver="1.2.3"))
    found = node.spec()
    await found.refresh(FOUR)

    assert f"{node.etc}/nvidia.yaml: made for driver 1.2.3, and 535.161.08" in found.reason


@pytest.mark.parametrize("end", ["sys.exit(1)", ""], ids=["fails", "useless output"])
async def test_a_generation_without_success_is_repeated_later_or_for_other_gpus(node, end):
    node.toolkit(WRITES + end)
    (node.root / "generated").write_bytes(b"{")
    found = node.spec()
    for of, expected in [(FOUR, 1), (FOUR, 2), (reading(gpu(0)), 3)]:
        await found.refresh(of)
        assert calls(node) == expected
        assert of in node.backoff
        await until(lambda of=of: of not in node.backoff)
    node.backoff.start(FOUR, "it has just failed")
    await found.refresh(FOUR)
    assert calls(node) == 3
    assert "it has just failed" in found.reason


async def test_a_lost_specification_leaves_a_reason(node):
    path = node.etc / "nvidia.yaml"
    node.write(path, nvidia_spec(FOUR.gpus))
    found = node.spec()
    await found.refresh(FOUR)
    path.unlink()
    await found.refresh(FOUR)

    assert found.spec is None
    assert "cannot be started" in found.reason


async def test_a_pipe_in_a_cdi_folder_is_not_waited_for(node):
    os.mkfifo(node.etc / "pipe.yaml")
    (node.etc / "endless.json").symlink_to("/dev/zero")
    node.write(node.run / "nvidia.yaml", nvidia_spec(FOUR.gpus))
    spec = node.spec()
    async with asyncio.timeout(PATIENCE):
        await spec.refresh(FOUR)

    assert spec.spec is not None
