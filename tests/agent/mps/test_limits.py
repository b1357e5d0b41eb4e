import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.mps.limits import DaemonLimits, Directories, client_edits, daemon_limits, limit_commands
from linkwise.cluster.allocations.gpus import GPUShare
from linkwise.cluster.container_variables import ENV_MPS_MEMORY, ENV_MPS_PIPES, ENV_MPS_THREADS
from linkwise.cluster.keys import GPU_MEM
from linkwise.cluster.requests.mps import PIPES
from linkwise.cluster.requests.request import ContainerRequest

HERE = Directories("/run/linkwise/mps/pipe", "/run/linkwise/mps/shm")


def ask(memory=4, core=20):
    return ContainerRequest("main", 0, False, False, GPU_MEM, memory=memory, core=core)


def variables(edits):
    return dict(entry.split("=", 1) for entry in edits.env)


def test_container_reaches_the_daemon_with_the_limits_of_its_request():
    edits = client_edits(ask(), 1, {}, HERE)

    assert variables(edits) == {
        ENV_MPS_PIPES: PIPES,
        ENV_MPS_THREADS: "20",
        ENV_MPS_MEMORY: "0=4096M",
    }
    assert [(mount.host_path, mount.container_path) for mount in edits.mounts] == [
        ("/run/linkwise/mps/pipe", "/tmp/nvidia-mps"),  # noqa: S108
        ("/run/linkwise/mps/shm", "/dev/shm"),  # noqa: S108
    ]
    options = {mount.options for mount in edits.mounts}
    assert options == {("rw", "nosuid", "nodev", "rbind", "rprivate")}


def test_share_of_several_cards_is_limited_on_each():
    environment = variables(client_edits(ask(8, 40), 2, {}, HERE))

    assert environment[ENV_MPS_THREADS] == "20"
    assert environment[ENV_MPS_MEMORY] == "0=4096M,1=4096M"


@pytest.mark.parametrize(
    ("name", "theirs", "kept"),
    [
        (ENV_MPS_THREADS, "10", True),
        (ENV_MPS_THREADS, "90", False),
        (ENV_MPS_THREADS, "", False),
        (ENV_MPS_MEMORY, "0=1G", True),
        (ENV_MPS_MEMORY, "0=5G", False),
        (ENV_MPS_MEMORY, "1=1G", False),
        (ENV_MPS_PIPES, "/somewhere", False),
    ],
)
def test_only_a_tighter_limit_of_the_user_is_kept(name, theirs, kept):
    environment = variables(client_edits(ask(), 1, {name: theirs}, HERE))

    assert (environment[name] == theirs) is kept


def test_compute_that_is_not_requested_is_not_limited():
    assert ENV_MPS_THREADS not in variables(client_edits(ask(core=0), 1, {}, HERE))


SHARES = st.lists(
    st.builds(
        GPUShare,
        st.integers(0, 3),
        st.none() | st.sampled_from(["GPU-a", "GPU-b"]),
        st.none() | st.integers(1, 80),
        st.none() | st.integers(1, 20).map(lambda n: 5 * n),
    )
)


@given(SHARES)
def test_daemon_limits_no_client_below_its_share(shares):
    limits = daemon_limits(shares)

    for share in shares:
        assert limits.threads >= (share.core or 100)
        if share.mem is not None:
            assert dict(limits.memory)[share.uuid or str(share.i)] >= share.mem * 1024


def test_daemon_limits_are_the_largest_shares():
    shares = [GPUShare(0, "GPU-a", 4, 20), GPUShare(0, "GPU-a", 8, 30), GPUShare(1, None, 2, 5)]

    assert daemon_limits(shares) == DaemonLimits(30, (("1", 2048), ("GPU-a", 8192)))
    assert daemon_limits([]) == DaemonLimits(100, ())


def test_limits_are_set_for_running_and_later_servers():
    assert limit_commands(DaemonLimits(30, (("GPU-a", 8192),)), [71]) == (
        "set_default_active_thread_percentage 30",
        "set_default_device_pinned_mem_limit GPU-a 8192M",
        "set_active_thread_percentage 71 30",
        "set_device_pinned_mem_limit 71 GPU-a 8192M",
    )
