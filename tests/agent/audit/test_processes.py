import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.audit.processes import ContainerId, parse_cgroup, parse_start, printable

HEX = st.text("0123456789abcdef", min_size=64, max_size=64)
UIDS = st.uuids().map(str)
QOS = st.sampled_from(["", "burstable", "besteffort"])
PREFIX = st.sampled_from(
    ["", "/kubelet.slice", "/docker/" + "c" * 64, "/system.slice/containerd.service"]
)
BELOW = st.sampled_from(["", "/init.scope", "/app/worker", "/pod-of-mine"])

UID = "6b0a3f9e-7f53-4a8b-9d0e-1c2d3e4f5a6b"
UNDERSCORED = UID.replace("-", "_")
ID = "ab" * 32


@given(UIDS, HEX, QOS, PREFIX, BELOW)
def test_cgroupfs_path_names_pod_and_container(uid, container, qos, prefix, below):
    path = "/".join(part for part in (prefix + "/kubepods", qos, f"pod{uid}", container) if part)

    assert parse_cgroup(f"0::{path}{below}\n") == ContainerId(uid, container)


@given(
    UIDS,
    HEX,
    QOS,
    st.sampled_from(["cri-containerd-", "crio-", "docker-"]),
    st.sampled_from(["", "kubelet-"]),
    BELOW,
)
def test_systemd_path_names_pod_and_container(uid, container, qos, runtime, prefix, below):
    base = f"{prefix}kubepods" + (f"-{qos}" if qos else "")
    pod = f"{base}-pod{uid.replace('-', '_')}.slice"
    path = f"/{prefix}kubepods.slice/{base}.slice/{pod}/{runtime}{container}.scope{below}"

    assert parse_cgroup(f"0::{path}\n") == ContainerId(uid, container)


@pytest.mark.parametrize(
    ("text", "container"),
    [
        pytest.param(
            f"12:memory:/kubepods/pod{UID}/{ID}\n1:name=systemd:/kubepods/pod{UID}/{ID}\n",
            ContainerId(UID, ID),
            id="version-1",
        ),
        pytest.param(
            f"13:misc:/\n4:memory:/kubepods/burstable/pod{UID}/{ID}\n0::/\n",
            ContainerId(UID, ID),
            id="hybrid",
        ),
        pytest.param(
            f"0::/../../kubepods-burstable-pod{UNDERSCORED}.slice/cri-containerd-{ID}.scope\n",
            ContainerId(UID, ID),
            id="seen-from-another-cgroup-namespace",
        ),
        pytest.param(f"0::/../../pod{UID}/{ID}\n", ContainerId(UID, ID), id="sibling"),
        pytest.param(
            f"0::/system.slice/containerd.service/kubepods-pod{UNDERSCORED}.slice:cri-containerd:{ID}\n",
            ContainerId(UID, ID),
            id="systemd-path-without-its-driver",
        ),
        pytest.param(
            f"0::/kubepods/pod{'ab12' * 8}/{ID}\n", ContainerId("ab12" * 8, ID), id="static-pod"
        ),
        pytest.param(
            f"0::/kubepods/pod{UID}/{ID}/pod{'ab12' * 8}/{'cd' * 32}\n",
            ContainerId(UID, ID),
            id="the-outermost-pod-counts",
        ),
        pytest.param(f"0::/kubepods/pod{UID}\n", ContainerId(UID, None), id="no-container"),
        pytest.param("0::/system.slice/nvidia-persistenced.service\n", None, id="service"),
        pytest.param("0::/user.slice/user-0.slice/session-1.scope\n", None, id="login"),
        pytest.param(f"0::/system.slice/docker-{ID}.scope\n", None, id="docker-outside-kubernetes"),
        pytest.param(f"0::/machine/podman-{UID}.scope\n", None, id="no-pod"),
        pytest.param("", None, id="kernel-thread"),
    ],
)
def test_container_of_a_cgroup(text, container):
    assert parse_cgroup(text) == container


@given(st.text())
def test_any_text_is_read_without_an_error(text):
    parse_cgroup(text)
    parse_start(text)
    assert len(printable(text)) <= 64
    assert printable(text).isprintable()


def stat(name):
    return f"71 ({name}) S 1 71 71 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 123456 22 33\n"


@pytest.mark.parametrize("name", ["python3", "a b", "x) R 2 (y", ")", ""])
def test_start_is_read_behind_any_name(name):
    assert parse_start(stat(name)) == 123456


@pytest.mark.parametrize("start", ["-1", "x", "\N{SUPERSCRIPT TWO}", "9" * 5000])
def test_a_start_that_is_no_number_of_the_kernel_is_unreadable(start):
    assert parse_start(stat("a").replace("123456", start)) is None
