import json
import os

import pytest

from agent.publish.kubelet_policy import read_kubelet_policy
from linkwise.cluster.nodes.kubelet_policy import CPUManager, KubeletPolicy, TopologyManager

STATE = {
    "policyName": "static",
    "defaultCpuSet": "0-1,8-9",
    "entries": {"uid": {"main": "2-7"}},
    "checksum": 1_234,
}
CONFIG = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
UNKNOWN = KubeletPolicy()


@pytest.fixture
def policy(tmp_path):
    """Reads the policies of a kubelet with these files."""

    def call(state=None, config=None):
        if state is not None:
            (tmp_path / "cpu_manager_state").write_text(state)
        if config is not None:
            (tmp_path / "config.yaml").write_text(config)
        return read_kubelet_policy(tmp_path)

    return call


def test_policies_are_those_of_the_state_and_the_configuration(policy):
    found = policy(json.dumps(STATE), f"{CONFIG}topologyManagerPolicy: single-numa-node\n")

    assert found == KubeletPolicy(CPUManager.STATIC, TopologyManager.SINGLE_NUMA_NODE)


def test_configuration_without_a_policy_has_the_default(policy):
    assert policy(config=CONFIG) == KubeletPolicy(None, TopologyManager.NONE)


def test_changed_files_are_read_again(policy):
    policy(json.dumps(STATE), CONFIG)

    found = policy('{"policyName": "none"}', f"{CONFIG}topologyManagerPolicy: restricted\n")

    assert found == KubeletPolicy(CPUManager.NONE, TopologyManager.RESTRICTED)


@pytest.mark.parametrize(
    "state",
    [None, "", "{", "[]", '{"policyName": 7}', '{"policyName": "odd"}', "[" * 100_000],
    ids=["missing", "empty", "cut off", "a list", "a number", "unknown word", "deep"],
)
def test_unreadable_state_is_unknown(policy, state):
    assert policy(state) == UNKNOWN


@pytest.mark.parametrize(
    "config",
    [
        None,
        "",
        "{",
        "- 1\n",
        "kind: Pod\n",
        f"{CONFIG}---\n{CONFIG}",
        f"{CONFIG}topologyManagerPolicy: [none]\n",
        f"{CONFIG}topologyManagerPolicy: odd\n",
        f"{CONFIG}# {'x' * 100_000}\n",
        "\0",
    ],
    ids=[
        "missing", "empty", "cut off", "a list", "another kind", "two documents", "no text",
        "unknown word", "too long", "a control character",
    ],
)  # fmt: skip
def test_unreadable_configuration_is_unknown(policy, config):
    assert policy(config=config) == UNKNOWN


def test_files_that_are_no_regular_files_are_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "cpu_manager_state")
    (tmp_path / "config.yaml").mkdir()

    assert read_kubelet_policy(tmp_path) == UNKNOWN


def test_bytes_that_are_no_text_are_unknown(tmp_path):
    for name in ("cpu_manager_state", "config.yaml"):
        (tmp_path / name).write_bytes(b"\xff\xfe")

    assert read_kubelet_policy(tmp_path) == UNKNOWN
