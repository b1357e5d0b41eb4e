import os
from pathlib import Path

import pytest

from agent.mps.isolation import Enforcement, Prober
from agent.mps.limits import Directories
from linkwise.cluster.allocations.record import Isolation


@pytest.fixture
def directories(tmp_path):
    for name in ("pipe", "shm"):
        (tmp_path / name).mkdir()
    (tmp_path / "pipe/control").touch()
    return Directories(str(tmp_path / "pipe"), str(tmp_path / "shm"))


async def test_mps_is_reported_where_a_client_was_limited(library, directories):
    result = await Prober(library, private_shared_memory=False).probe(directories)

    assert result == Enforcement(
        Isolation.MPS,
        "a client was limited to 1 of 100 multiprocessors and 512 MiB,"
        " and a process without MPS got no GPU",
    )


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("threads", "a client with a limit of 1 % has 100 multiprocessors, and one without"),
        ("memory", "a client with a limit of 512 MiB allocated 640 MiB"),
        ("shared", "a process that avoids the MPS daemon gets the GPU without limits"),
        ("full", "not measured: a client without limits cannot allocate 640 MiB"),
        ("broken", "a client of MPS failed (init): cuInit failed with error 100"),
    ],
)
async def test_a_limit_that_does_not_hold_is_no_isolation(
    library, directories, monkeypatch, fault, reason
):
    monkeypatch.setenv("STANDIN_CUDA", fault)

    result = await Prober(library, private_shared_memory=False).probe(directories)

    assert result.isolation is Isolation.NONE
    assert result.reason.startswith(reason)


async def test_limits_of_the_agents_own_environment_are_not_inherited(
    library, directories, monkeypatch
):
    monkeypatch.setenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "5")

    result = await Prober(library, private_shared_memory=False).probe(directories)

    assert result.isolation is Isolation.MPS


async def test_no_daemon_is_no_isolation(library, directories):
    Path(directories.pipes, "control").unlink()  # noqa: ASYNC240

    result = await Prober(library, private_shared_memory=False).probe(directories)

    assert result.reason == (
        "a client of MPS failed (context): cuDevicePrimaryCtxRetain failed with error 46"
    )


async def test_missing_library_is_a_reason(directories, tmp_path):
    missing = str(tmp_path / "libcuda.so.1")

    result = await Prober(missing, private_shared_memory=False).probe(directories)

    assert result.isolation is Isolation.NONE
    assert result.reason.startswith(f"a client of MPS failed (load): {missing}: ")


async def test_program_that_takes_too_long_is_a_reason(library, directories):
    prober = Prober(library, private_shared_memory=False, seconds=0.001)

    result = await prober.probe(directories)

    assert result.reason.endswith("did not end within 0.001 s")


@pytest.mark.skipif(os.geteuid() != 0, reason="a mount namespace needs root")
async def test_programs_have_the_shared_memory_of_the_daemon(library, directories):
    assert (await Prober(library).probe(directories)).isolation is Isolation.MPS
