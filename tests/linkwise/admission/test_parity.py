"""The command line and the server give the same answer about a pod."""

import base64
import json

import jsonpatch
import pytest
from support.admission import review_response
from support.builders import a_container, a_pod

from linkwise.cli.__main__ import run
from linkwise.cluster import container_variables, keys
from linkwise.cluster.nodes.capacity import Capacity
from linkwise.policy.document import parse_policy
from linkwise.policy.profile import parse_profiles
from linkwise.policy.snapshot import PolicySnapshot

PROFILES = json.dumps(
    [
        {
            "name": "driver",
            "objectSelector": {"matchLabels": {keys.COMPUTE_CLASS: "gpu-hpn"}},
            "effect": {"labels": {keys.DRIVER_VERSION: "1.5.0"}},
        }
    ]
)
POLICY = "visibleDevices: deny\n"
DEVICES = {"name": container_variables.ENV_VISIBLE_DEVICES, "value": "all"}
HPN = {keys.COMPUTE_CLASS: "gpu-hpn"}
T4 = {keys.COMPUTE_CLASS: "gpu", keys.MODEL_SERIES: "T4", keys.DRIVER_VERSION: "535.161.08"}
ARENA = {keys.POD_GROUP_NAME: "job", keys.POD_GROUP_MIN_AVAILABLE: "4"}


@pytest.fixture
def check(tmp_path, capsys):
    """Returns what `linkwise check` says of a pod."""
    policy = {"namespace": keys.POLICY_NAMESPACE, "name": keys.POLICY_NAME}
    (tmp_path / "profiles.json").write_text(PROFILES)
    maps = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": policy}
    (tmp_path / "policy.yaml").write_text(json.dumps({**maps, "data": {keys.POLICY_KEY: POLICY}}))

    def check(pod):
        file = tmp_path / "pod.json"
        file.write_text(json.dumps(pod))
        decisions = ("--profile", tmp_path / "profiles.json", "--policy", tmp_path / "policy.yaml")
        run(["check", *map(str, (file, *decisions)), "-o", "json"])
        (entry,) = json.loads(capsys.readouterr().out)["items"]
        return entry["verdict"], entry["patched"], sorted(entry["warnings"])

    return check


def answered(pod):
    """Return what the server says of a pod."""
    request = {
        "uid": "42",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "operation": "CREATE",
        "namespace": "default",
        "object": pod,
    }
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    answer = review_response(
        json.dumps(review).encode(),
        namespaces={"default": {}},
        policy=PolicySnapshot(parse_policy(POLICY), parse_profiles(PROFILES)),
        capacity=Capacity(),
    )
    response = json.loads(answer)["response"]
    patch = json.loads(base64.b64decode(response.get("patch", "W10=")))
    return response["allowed"], jsonpatch.apply_patch(pod, patch), response


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(a_pod({"cpu": 1}), id="not ours"),
        pytest.param(a_pod({keys.GPU_MEM: 2, keys.GPU_CORE: 20}), id="share"),
        pytest.param(a_pod({keys.GPU_MEM: 2, keys.GPU_CORE: 22}), id="core 22"),
        pytest.param(a_pod({keys.GPU_WHOLE: 4}, {}), id="whole, and a container without"),
        pytest.param(a_pod({keys.NVIDIA_GPU: 1}, labels=T4), id="model and driver"),
        pytest.param(a_pod({keys.NVIDIA_GPU: 1}, labels=HPN), id="profile"),
        pytest.param(a_pod({keys.GPU_WHOLE: 1}, labels=ARENA), id="gang"),
        pytest.param(
            a_pod(containers=[a_container({keys.GPU_WHOLE: 1}, env=[DEVICES])]), id="policy"
        ),
        pytest.param(a_pod({keys.GPU_WHOLE: 1}, annotations={keys.TERM: "1"}), id="record"),
    ],
)
def test_check_and_server_decide_equally(check, pod):
    verdict, patched, warnings = check(pod)
    allowed, after, response = answered(pod)

    assert (verdict != "denied") == allowed
    assert patched == after
    assert warnings == sorted(response.get("warnings", []))
