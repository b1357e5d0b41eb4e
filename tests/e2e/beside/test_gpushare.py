"""Pods that Linkwise placed, read by gpushare's own device plugin and inspect tool.

Sources: gpushare-device-plugin `pkg/gpu/nvidia/{allocate,podutils,podmanager}.go` and
`cmd/inspect/nodeinfo.go` at 45fb8b8.
"""

import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from controlplane.cards import where
from controlplane.process import wait_until

from linkwise.cluster import keys

LINKWISE = Path(sys.executable).with_name("linkwise")
# The field's own node and label: nothing of it says Linkwise.
NODE = {"name": "share", "machine": "t4x4", "mode": "share", "gpuMemory": 15}
HOME, PLUGIN = "kube-system", "gpushare-device-plugin"
RBAC = "/apis/rbac.authorization.k8s.io/v1"


def limit(pod):
    """Return what a pod asks for, as their tools count it: by its app containers."""
    return sum(int(one["resources"]["limits"][keys.GPU_MEM]) for one in pod["spec"]["containers"])


def served(pods, units):
    """Return for which pod the plugin takes a call of the kubelet for so many units."""
    waiting = [pod for pod in pods if pod["metadata"]["annotations"][keys.MEM_ASSIGNED] == "false"]
    by_age = sorted(
        waiting, key=lambda pod: int(pod["metadata"]["annotations"][keys.MEM_ASSUME_TIME])
    )
    return next(pod for pod in by_age if limit(pod) == units)


def counted(pods):
    """Return the memory in use of each card, as their inspect tool counts it."""
    used = Counter()
    for pod in pods:
        used[int(pod["metadata"]["annotations"][keys.MEM_IDX])] += limit(pod)
    return [f"{used[card]}/15" for card in range(4)]


@pytest.fixture
def plugin(plane):
    """The API server as the plugin sees it, with the access that gpushare ships."""
    accounts = f"/api/v1/namespaces/{HOME}/serviceaccounts"
    plane.api.create(accounts, {"metadata": {"name": PLUGIN}})
    rule = {
        "apiGroups": [""],
        "resources": ["pods"],
        "verbs": ["update", "patch", "get", "list", "watch"],
    }
    plane.api.create(f"{RBAC}/clusterroles", {"metadata": {"name": PLUGIN}, "rules": [rule]})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": PLUGIN}
    subject = {"kind": "ServiceAccount", "name": PLUGIN, "namespace": HOME}
    body = {"metadata": {"name": PLUGIN}, "roleRef": role, "subjects": [subject]}
    plane.api.create(f"{RBAC}/clusterrolebindings", body)
    yield plane.api_as(plane.token(HOME, PLUGIN))
    plane.api.delete(f"{RBAC}/clusterrolebindings/{PLUGIN}")
    plane.api.delete(f"{RBAC}/clusterroles/{PLUGIN}")
    plane.api.delete(f"{accounts}/{PLUGIN}")


def test_gpushare_plugin_finds_its_pods_and_its_inspect_tool_agrees(
    plane, pods, nodes, plugin, tmp_path
):
    nodes(NODE)
    cards = {}
    for name, memory in {"a": 8, "b": 5, "c": 9}.items():
        pods.create({keys.GPU_MEM: memory}, name=name)
        cards[name] = where(pods, name)[1]
    assert cards == {"a": (0,), "b": (0,), "c": (1,)}

    # The kubelet calls for them in another order than that of their binding.
    for name, memory in {"c": 9, "a": 8, "b": 5}.items():
        found = served(pods.all().values(), memory)
        annotations = found["metadata"]["annotations"]
        assert found["metadata"]["name"] == name
        assert (int(annotations[keys.MEM_IDX]),) == cards[name]
        assert annotations[keys.MEM_POD] == str(memory)
        assert annotations[keys.MEM_DEV] == "15"
        annotations = {keys.MEM_ASSIGNED: "true", keys.MEM_ASSUME_TIME: str(time.time_ns())}
        plugin.patch(f"{pods.path}/{name}", {"metadata": {"annotations": annotations}}, "strategic")

    # What they wrote disturbs nothing.
    pods.create({keys.GPU_MEM: 6}, name="d")
    assert where(pods, "d") == ("share", (1,))
    each = counted(pods.all().values())
    assert each == ["13/15", "15/15", "0/15", "0/15"]

    def ours():
        ran = subprocess.run(
            [LINKWISE, "inspect", "--format=gpushare", "--kubeconfig", plane.kubeconfig],
            cwd=tmp_path, capture_output=True, text=True, check=False,
        )  # fmt: skip
        # Below the heading, the only node.
        return [line.split()[2:] for line in ran.stdout.splitlines()[1:2]]

    wait_until(lambda: ours() == [[*each, "28/60"]], "they are counted alike")
