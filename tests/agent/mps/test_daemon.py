import asyncio
import os
import signal
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from support.waiting import until

from agent.mps.daemon import ControlDaemon, DaemonStatus, State
from agent.mps.limits import SHARED_MEMORY, DaemonLimits


def commands(node):
    file = node / "mps/log/commands"
    return file.read_text().splitlines() if file.exists() else []


def compute_mode(node):
    file = node / "compute-mode"
    return file.read_text().split()[-1] if file.exists() else None


def daemon_pid(pipes):
    return int(Path(pipes, "nvidia-cuda-mps-control.pid").read_text())


async def kill(pipes):
    """Kill a daemon, which is no child of this process, and wait until it is gone."""
    os.kill(daemon_pid(pipes), signal.SIGKILL)
    stat = Path(f"/proc/{daemon_pid(pipes)}/stat")
    await until(lambda: not stat.exists() or " Z " in stat.read_text())


def start_another(node, settings):
    pipes = node / "other/pipe"
    pipes.mkdir(parents=True)
    environment = {
        "PATH": settings.path,
        "CUDA_MPS_PIPE_DIRECTORY": str(pipes),
        "CUDA_MPS_LOG_DIRECTORY": str(node / "mps/log"),
    }
    subprocess.run([node / "bin/nvidia-cuda-mps-control", "-d"], env=environment, check=True)


async def test_daemon_is_started_where_the_mode_needs_it(node, settings):
    daemon = ControlDaemon(settings)

    status = await daemon.reconcile(needed=True)

    assert status == DaemonStatus(
        State.RUNNING,
        f"the agent's daemon answers at {node}/mps/pipe",
        settings.own,
        ours=True,
        servers=(4242,),
    )
    assert compute_mode(node) == "EXCLUSIVE_PROCESS"
    assert await daemon.reconcile(needed=True) == status
    assert commands(node).count("start_server -uid 0") == 1


async def test_daemon_is_ended_when_the_mode_changes(node, settings):
    daemon = ControlDaemon(settings)
    await daemon.reconcile(needed=True)

    status = await daemon.reconcile(needed=False)

    assert (status.state, compute_mode(node)) == (State.OFF, "DEFAULT")
    assert commands(node)[-1] == "quit"
    assert (await daemon.reconcile(needed=True)).state is State.RUNNING


async def test_nothing_is_run_where_no_daemon_is_needed(node, settings):
    assert (await ControlDaemon(settings).reconcile(needed=False)).state is State.OFF

    assert compute_mode(node) is None
    assert commands(node) == []


async def test_restarted_agent_knows_its_daemon(node, settings):
    before = await ControlDaemon(settings).reconcile(needed=True)
    pid = daemon_pid(settings.own.pipes)

    after = ControlDaemon(settings)

    assert await after.reconcile(needed=True) == before
    assert daemon_pid(settings.own.pipes) == pid
    await after.stop()
    assert commands(node)[-1] == "quit"


async def test_daemon_that_died_is_restarted_after_a_backoff(settings):
    ready = asyncio.Event()
    daemon = ControlDaemon(settings, ready.set)
    await daemon.reconcile(needed=True)
    await kill(settings.own.pipes)

    failed = await daemon.reconcile(needed=True)

    assert failed.state is State.FAILED
    assert failed.reason.endswith("/mps/pipe died; it is started again later")
    await ready.wait()
    assert (await daemon.reconcile(needed=True)).state is State.RUNNING


async def test_compute_mode_is_reset_after_a_daemon_that_died(node, settings):
    daemon = ControlDaemon(settings)
    await daemon.reconcile(needed=True)
    await kill(settings.own.pipes)

    assert (await daemon.reconcile(needed=False)).state is State.OFF
    assert compute_mode(node) == "DEFAULT"


async def test_daemon_of_the_node_is_used_and_left_alone(node, settings):
    start_another(node, settings)
    daemon = ControlDaemon(settings)

    status = await daemon.reconcile(needed=True)

    assert (status.state, status.ours, status.directories) == (
        State.RUNNING,
        False,
        settings.others[0],
    )
    assert await daemon.apply(DaemonLimits(30)) is None
    await daemon.stop()
    assert set(commands(node)) == {"get_server_list"}
    assert compute_mode(node) is None


async def test_daemon_of_the_node_is_never_restarted(node, settings):
    start_another(node, settings)
    daemon = ControlDaemon(settings)
    await daemon.reconcile(needed=True)
    await kill(settings.others[0].pipes)

    status = await daemon.reconcile(needed=True)

    assert status.state is State.FAILED
    assert "the agent did not start it" in status.reason
    assert compute_mode(node) is None


async def test_daemon_that_cannot_start_says_why(node, settings):
    (node / "mps/log/refuse").touch()

    status = await ControlDaemon(settings).reconcile(needed=True)

    assert status.state is State.FAILED
    assert "nvidia-cuda-mps-control ended with status 1: the driver is too old" in status.reason


async def test_missing_program_is_a_reason(node, settings):
    (node / "bin/nvidia-smi").unlink()

    status = await ControlDaemon(replace(settings, path=str(node / "bin"))).reconcile(needed=True)

    assert status.reason == "nvidia-smi cannot be started: No such file or directory"


async def test_program_that_hangs_is_killed(node, settings):
    daemon = ControlDaemon(replace(settings, start_seconds=0.1))
    (node / "mps/log/hang").touch()

    status = await daemon.reconcile(needed=True)

    assert status.reason == "nvidia-cuda-mps-control did not end within 0.1 s"


async def test_limits_of_the_daemon_are_set_once(node, settings):
    daemon, limits = ControlDaemon(settings), DaemonLimits(30, (("GPU-a", 8192),))
    await daemon.reconcile(needed=True)

    assert await daemon.apply(limits) is None
    assert await daemon.apply(limits) is None

    assert [command for command in commands(node) if command.startswith("set_")] == [
        "set_default_active_thread_percentage 30",
        "set_default_device_pinned_mem_limit GPU-a 8192M",
        "set_active_thread_percentage 4242 30",
        "set_device_pinned_mem_limit 4242 GPU-a 8192M",
    ]


async def test_refused_limit_is_a_problem_and_tried_again(settings):
    daemon, limits = ControlDaemon(settings), DaemonLimits(30, (("GPU-gone", 8192),))
    await daemon.reconcile(needed=True)

    assert await daemon.apply(limits) == "Invalid device"
    assert await daemon.apply(limits) == "Invalid device"


@pytest.mark.skipif(os.geteuid() != 0, reason="a mount namespace needs root")
async def test_daemon_has_a_shared_memory_folder_of_its_own(settings):
    daemon = ControlDaemon(replace(settings, private_shared_memory=True))

    status = await daemon.reconcile(needed=True)

    assert status.state is State.RUNNING, status.reason
    seen = f"/proc/{daemon_pid(settings.own.pipes)}/root/dev/shm"
    assert os.path.samefile(seen, settings.own.shared_memory)  # noqa: ASYNC240, PTH121
    assert not os.path.samefile("/dev/shm", seen)  # noqa: ASYNC240, PTH121, S108
    assert statvfs_mib(settings.directory) == 64
    assert statvfs_mib(status.directories.shared_memory) == 64

    await daemon.stop()
    assert not os.path.ismount(settings.directory)  # noqa: ASYNC240


def statvfs_mib(folder):
    """Return the size of the file system that a folder is in."""
    about = os.statvfs(folder)
    return about.f_frsize * about.f_blocks >> 20


async def test_daemon_with_the_shared_memory_of_the_host_is_not_used(node, settings):
    start_another(node, settings)
    [other] = settings.others
    shared = replace(settings, others=(replace(other, shared_memory=SHARED_MEMORY),))
    daemon = ControlDaemon(shared)

    status = await daemon.reconcile(needed=True)

    assert (status.state, status.directories) == (State.FAILED, None)
    assert "has the /dev/shm of the host" in status.reason
    assert compute_mode(node) is None
    await kill(other.pipes)
    assert (await daemon.reconcile(needed=True)).ours
