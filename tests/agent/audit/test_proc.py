import os
import subprocess
from pathlib import Path

from agent.audit.proc import read_processes
from agent.audit.processes import ContainerId, Process

UID, ID = "6b0a3f9e-7f53-4a8b-9d0e-1c2d3e4f5a6b", "ab" * 32


def a_process(proc, pid, *, name="train", cgroup=f"0::/kubepods/pod{UID}/{ID}\n", started=99):
    folder = proc / str(pid)
    folder.mkdir()
    (folder / "stat").write_text(f"{pid} ({name}) S {'0 ' * 18}{started} 0\n")
    (folder / "comm").write_text(f"{name}\n")
    (folder / "cgroup").write_text(cgroup)
    return folder


def test_process_has_its_container_name_and_start(tmp_path):
    a_process(tmp_path, 7)

    (process,) = read_processes([(3, 7)], tmp_path)

    assert process == Process(3, 7, 99, "train", ContainerId(UID, ID))


def test_process_that_ended_is_left_out(tmp_path):
    a_process(tmp_path, 7)
    (a_process(tmp_path, 8) / "cgroup").unlink()

    assert [p.pid for p in read_processes([(0, 6), (0, 7), (1, 8)], tmp_path)] == [7]


def test_name_cannot_forge_a_message(tmp_path):
    a_process(tmp_path, 7, name="\x1b[2Ja\n")

    (process,) = read_processes([(0, 7)], tmp_path)

    assert process.name == "?[2Ja"


def test_real_processes_are_read():
    child = subprocess.Popen(["cat"], stdin=subprocess.PIPE)  # noqa: S607
    try:
        own, other = read_processes([(0, os.getpid()), (0, child.pid)], Path("/proc"))
        assert own.started <= other.started
        assert other.pid == child.pid
    finally:
        child.communicate()
    assert read_processes([(0, child.pid)], Path("/proc")) == ()
