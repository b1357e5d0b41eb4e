import msgspec
import pytest
from builders import a_container, a_pod

from agent.mps.daemon import ControlDaemon
from agent.mps.isolation import Prober
from agent.mps.limits import ClientEdits
from agent.mps.sharing import MPS
from cluster.keys import ENV_MPS_MEMORY, ENV_MPS_THREADS, GPU_CORE, GPU_MEM, GPU_WHOLE
from cluster.pod import Pod
from cluster.record import GPUShare, Isolation

SHARE = {GPU_MEM: 4, GPU_CORE: 20}


def a_typed_pod(*containers):
    return msgspec.convert(a_pod({}, containers=list(containers)), Pod)


@pytest.fixture
async def mps(settings, library):
    sharing = MPS(ControlDaemon(settings), Prober(library, private_shared_memory=False))
    yield sharing
    await sharing.stop()


def set_commands(node):
    lines = (node / "mps/log/commands").read_text().splitlines()
    return [line for line in lines if line.startswith("set_default_active")]


async def test_isolation_is_what_a_client_showed(mps):
    await mps.reconcile([], needed=True)

    assert mps.isolation is Isolation.MPS


async def test_limit_that_does_not_hold_is_no_isolation(mps, monkeypatch):
    monkeypatch.setenv("STANDIN_CUDA", "memory")

    await mps.reconcile([], needed=True)

    assert mps.isolation is Isolation.NONE
    assert "allocated" in mps.enforcement.reason


async def test_daemon_that_fails_is_no_isolation(mps, node):
    (node / "mps/log/refuse").touch()

    await mps.reconcile([], needed=True)

    assert mps.isolation is Isolation.NONE
    assert "the driver is too old" in mps.enforcement.reason


async def test_another_mode_has_nothing_to_publish(mps):
    await mps.reconcile([], needed=True)
    await mps.reconcile([], needed=False)

    assert mps.isolation is None


async def test_container_has_its_own_limits_and_the_daemon_those_of_the_largest(mps, node):
    gpu = GPUShare(0, "GPU-a", 4, 20)
    await mps.reconcile([GPUShare(0, "GPU-a", 2, 10)], needed=True)
    env = [{"name": ENV_MPS_THREADS, "value": "15"}]

    pod = a_typed_pod({**a_container(SHARE, name="main"), "env": env})
    edits = await mps.edits(pod, "main", (gpu,))

    assert edits.environment[ENV_MPS_THREADS] == "15"
    assert edits.environment[ENV_MPS_MEMORY] == "0=4096M"
    assert set_commands(node)[-1] == "set_default_active_thread_percentage 20"
    await mps.reconcile([], needed=True)
    assert set_commands(node)[-1] == "set_default_active_thread_percentage 20"
    await mps.reconcile([], needed=True)
    assert set_commands(node)[-1] == "set_default_active_thread_percentage 100"


async def test_each_container_of_a_pod_has_the_limits_of_its_request(mps):
    await mps.reconcile([], needed=True)
    pod = a_typed_pod(a_container(SHARE, name="main"), a_container({GPU_MEM: 2}, name="side"))

    edits = await mps.edits(pod, "side", (GPUShare(0, "GPU-a", 6, 20),))

    assert edits.environment[ENV_MPS_MEMORY] == "0=2048M"
    assert ENV_MPS_THREADS not in edits.environment


async def test_containers_without_a_share_or_a_daemon_are_not_changed(mps):
    share, whole = a_container(SHARE, name="main"), a_container({GPU_WHOLE: 1}, name="main")
    gpus = (GPUShare(0, "GPU-a"),)

    assert await mps.edits(a_typed_pod(share), "main", gpus) == ClientEdits({}, ())
    await mps.reconcile([], needed=True)
    assert await mps.edits(a_typed_pod(whole), "main", gpus) == ClientEdits({}, ())
