"""The manifests of the guides for users of other systems do what the guides say."""

import json

import pytest
import yaml
from support.printed import blocks

from linkwise.cli.__main__ import run

POLICY = "sharing: {computeByMps: true}\n"
NODES = [
    {
        "name": "mps",
        "machine": "t4x4",
        "mode": "mps",
        "gpuMemory": 15,
        "cpu": 32,
        "memory": "128Gi",
    },
    {"name": "plugin", "machine": "t4x4", "cpu": 32, "memory": "128Gi"},
]
NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}}


@pytest.fixture
def simulate(tmp_path, capsys):
    """Place a pod with the resources of a block, with a policy of shares on MPS."""
    cluster = {"apiVersion": "linkwise.dev/v1alpha1", "kind": "Cluster", "nodes": NODES}

    def place(block):
        container = {"name": "main", "image": "infer", **yaml.safe_load(block)}
        spec = {"containers": [container]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "infer"}, "spec": spec}
        files = {"pod": [pod], "cluster": [cluster, NAMESPACE]}
        for name, objects in files.items():
            (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump_all(objects))
        (tmp_path / "policy.yaml").write_text(POLICY)
        arguments = (str(tmp_path / "pod.yaml"), "--policy", str(tmp_path / "policy.yaml"))
        code = run(
            ["simulate", *arguments, "--cluster", str(tmp_path / "cluster.yaml"), "-o", "json"]
        )
        return code, json.loads(capsys.readouterr().out)

    return place


def test_a_pod_of_hami_is_left_alone_and_its_counterpart_gets_a_share(simulate):
    before, after = blocks("docs/from-hami.md", "yaml")

    _, answer = simulate(before)
    assert "HAMi" in json.dumps(answer["pods"])
    assert [pod["node"] for pod in answer["pods"]] == [None]
    code, answer = simulate(after)
    assert (code, [pod["node"] for pod in answer["pods"]]) == (0, ["mps"])
