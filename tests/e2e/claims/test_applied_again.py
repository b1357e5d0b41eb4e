"""A manifest for `nvidia.com/gpu` that is applied again, although the pod has a claim instead."""

import json

import pytest
from controlplane.pods import a_pod
from controlplane.process import wait_until

from linkwise.cluster import keys

pytestmark = pytest.mark.usefixtures("placing")


@pytest.mark.parametrize("options", [(), ("--server-side",)], ids=["apply", "server-side apply"])
def test_a_pod_with_a_claim_whose_manifest_is_applied_again_is_unchanged(
    plane, pods, machines, options
):
    machines(1)
    body = {"apiVersion": "v1", "kind": "Pod", **a_pod("train", {keys.NVIDIA_GPU: 2, "cpu": 1})}
    body["metadata"]["namespace"] = pods.namespace

    def kubectl(verb):
        return plane.kubectl(verb, *options, "--filename=-", stdin=json.dumps(body))

    assert kubectl("apply").returncode == 0
    wait_until(lambda: bool(pods.all()["train"]["spec"].get("nodeName")), "it is bound", 60)
    before = pods.all()["train"]["spec"]

    again, differs = kubectl("apply"), kubectl("diff")

    assert again.returncode == 0, again.stderr
    assert pods.all()["train"]["spec"] == before
    assert (differs.returncode, differs.stdout) == (0, ""), differs.stderr
