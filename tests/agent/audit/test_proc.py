import os
import subprocess
from pathlib import Path

import pytest
from support.proc_files import ID, UID, a_process

from agent.audit.proc import read_processes, running_pods
from agent.audit.processes import ContainerId, Process


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


@pytest.mark.parametrize(
    "cgroup",
    [
        f"0::/kubepods/besteffort/pod{UID}/{ID}\n",
        f"0::/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice/cri-containerd-{ID}.scope\n",
        f"9:name=systemd:/\n4:memory:/kubepods/pod{UID}/{ID}\n0::/\n",
        f"4:memory:/prefix/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice\n",
        f"0::/../../kubepods/pod{UID}/{ID}\n",
    ],
    ids=["v2, cgroupfs", "v2, systemd", "v1, cgroupfs", "v1, systemd", "another namespace"],
)
def test_a_process_of_a_pod_is_found_by_every_kind_of_cgroup(tmp_path, cgroup):
    a_process(tmp_path, 7, cgroup=cgroup)
    a_process(tmp_path, 8, cgroup="0::/system.slice/sshd.service\n")
    (tmp_path / "cpuinfo").touch()

    assert running_pods({UID, "another"}, tmp_path) == {UID: "process 7 (train)"}
    assert running_pods({"another"}, tmp_path) == {}


def test_a_process_hangs_as_long_as_one_of_its_threads_runs(tmp_path):
    process = a_process(tmp_path, 7, state="Z")
    assert running_pods({UID}, tmp_path) == {}
    (process / "task/8").mkdir()
    assert running_pods({UID}, tmp_path) == {UID: "process 7 (train)"}


def test_a_process_that_ends_meanwhile_does_not_run(tmp_path):
    (a_process(tmp_path, 7) / "cgroup").unlink()
    assert running_pods({UID}, tmp_path) == {}


def test_processes_that_cannot_be_read_are_no_answer(tmp_path):
    with pytest.raises(OSError, match="missing"):
        running_pods({UID}, tmp_path / "missing")
