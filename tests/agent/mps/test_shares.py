"""The edits of containers, by a daemon that a script stands in for."""

import os
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from agent.binding.cdi_spec import Edits
from agent.binding.container_spec import Binding
from agent.binding.errors import BindError
from agent.mps.daemon import ControlDaemon, State
from agent.mps.isolation import Prober
from agent.mps.shares import MPSShares
from linkwise.cluster import container_variables, keys
from linkwise.cluster.allocations.gpus import GPUShare
from linkwise.cluster.allocations.record import Isolation
from linkwise.cluster.mode import NodeMode
from linkwise.cluster.objects.pod import Pod

SHARE = (GPUShare(0, "GPU-0", mem=4, core=25),)


def pod(**variables):
    limits = {keys.GPU_MEM: "4", keys.GPU_CORE: "25"}
    env = [{"name": name, "value": value} for name, value in variables.items()]
    container = {"name": "main", "resources": {"limits": limits}, "env": env}
    return msgspec.convert({"metadata": {"name": "a"}, "spec": {"containers": [container]}}, Pod)


async def nothing():
    return ()


@pytest.fixture
async def shares(settings):
    mps = MPSShares(ControlDaemon(settings), Prober("/nonexistent", private_shared_memory=False))
    yield mps
    await mps.stop()


async def test_a_node_of_another_mode_adds_nothing(shares):
    await shares.reconcile(NodeMode.CORE_MEM, nothing)
    assert await shares.edits(pod(), "main", SHARE, nothing) == Edits()
    assert (shares.isolation, shares.problem) == (None, None)


async def test_a_container_gets_the_limits_of_its_share(shares):
    await shares.reconcile(NodeMode.MPS, nothing)
    edits = await shares.edits(pod(), "main", SHARE, nothing)
    assert f"{container_variables.ENV_MPS_THREADS}=25" in edits.env
    assert f"{container_variables.ENV_MPS_MEMORY}=0=4096M" in edits.env
    assert any(entry.startswith(f"{container_variables.ENV_MPS_PIPES}=") for entry in edits.env)
    assert edits.mounts


@pytest.mark.parametrize(
    ("own", "expected"), [("10", "10"), ("100", "25")], ids=["tighter", "looser"]
)
async def test_only_a_tighter_limit_of_the_pod_is_kept(shares, own, expected):
    await shares.reconcile(NodeMode.MPS, nothing)
    edits = await shares.edits(
        pod(**{container_variables.ENV_MPS_THREADS: own}), "main", SHARE, nothing
    )
    assert f"{container_variables.ENV_MPS_THREADS}={expected}" in edits.env


async def test_isolation_is_none_until_a_client_was_seen_to_be_limited(shares):
    await shares.reconcile(NodeMode.MPS, nothing)
    assert shares.isolation is Isolation.NONE
    assert "/nonexistent" in shares.problem


async def test_no_container_starts_without_the_daemon(shares, node):
    (node / "bin/nvidia-cuda-mps-control").write_text("#!/bin/sh\nexit 1\n")
    await shares.reconcile(NodeMode.MPS, nothing)
    assert shares.problem
    with pytest.raises(BindError, match="MPS"):
        await shares.edits(pod(), "main", SHARE, nothing)


async def test_limits_of_a_container_hold_while_a_smaller_one_starts(shares, node):
    await shares.reconcile(NodeMode.MPS, nothing)
    small = (GPUShare(0, "GPU-0", mem=1, core=5),)

    await shares.edits(pod(), "main", SHARE, nothing)
    await shares.reconcile(NodeMode.MPS, nothing)
    await shares.edits(pod(), "main", small, nothing)

    assert "set_active_thread_percentage 4242 5" not in (
        (node / "mps/log/commands").read_text().splitlines()
    )


async def test_limits_of_a_container_that_is_gone_are_lowered(shares, node):
    await shares.reconcile(NodeMode.MPS, nothing)
    small = (GPUShare(0, "GPU-0", mem=1, core=5),)

    await shares.edits(pod(), "main", SHARE, nothing)
    await shares.reconcile(NodeMode.MPS, nothing)
    await shares.reconcile(NodeMode.MPS, nothing)
    await shares.edits(pod(), "main", small, nothing)

    last = (node / "mps/log/commands").read_text().splitlines()[-1]
    assert last == "set_device_pinned_mem_limit 4242 GPU-0 1024M"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs the right to mount")
async def test_files_of_containers_are_removed_after_the_last_one(settings):
    live = [Binding("ns", "a", "u", "main", keys.GPU_MEM, frozenset({"s"}), SHARE)]

    async def bindings():
        return live

    private = ControlDaemon(replace(settings, private_shared_memory=True))
    mps = MPSShares(private, Prober("/nonexistent", private_shared_memory=False))
    try:
        await mps.reconcile(NodeMode.MPS, bindings)
        await mps.edits(pod(), "main", SHARE, bindings)
        left = [Path(folder, "left") for folder in (settings.own.pipes, settings.own.shared_memory)]
        for file in left:
            file.touch()
        for _ in range(3):
            await mps.reconcile(NodeMode.MPS, bindings)
        assert all(file.exists() for file in left)

        live.clear()
        await mps.reconcile(NodeMode.MPS, bindings)
        assert not any(file.exists() for file in left)
        assert private.status.state is State.RUNNING
        left[0].touch()
        await mps.reconcile(NodeMode.MPS, bindings)
        assert left[0].exists()
    finally:
        await mps.stop()
