"""The namespace of Linkwise deleted before its registrations and policies: pods are still created.

The table of docs/operations, "When the webhook is unavailable", where no server comes back.
"""

import os
import subprocess

import pytest
from controlplane.api import ApiError, refusal
from controlplane.manifests import (
    MUTATING,
    NAMESPACE,
    NAMESPACES,
    ROOT,
    complaints,
    install,
    names,
    uninstall,
)
from controlplane.pods import Pods, gates
from controlplane.process import wait_until

from linkwise.cluster import container_variables, keys

GPU = {keys.GPU_WHOLE: 1}
NVIDIA = {keys.NVIDIA_GPU: 1}
pytestmark = pytest.mark.versions

ALL = {"name": container_variables.ENV_VISIBLE_DEVICES, "value": "all"}


@pytest.fixture(scope="module")
def deserted(plane):
    """What is shipped, without the namespace: registrations and policies stay."""
    install(plane)
    deleted = plane.kubectl("delete", "namespace", NAMESPACE, "--wait=false")
    assert deleted.returncode == 0, deleted.stderr
    wait_until(lambda: NAMESPACE not in names(plane, NAMESPACES), f"{NAMESPACE} is gone", 300)
    assert "service" in plane.api.get(MUTATING)["webhooks"][0]["clientConfig"]
    yield plane
    plane.manifests = ROOT / "manifests/base"
    uninstall(plane)


@pytest.fixture
def pods(deserted, namespace):
    wait_until(lambda: "linkwise-placed" in refused(deserted.api, namespace), "policies hold")
    return Pods(deserted.api, namespace)


def refused(api, namespace):
    return Pods(api, namespace).refusal(GPU, name="probe", dryRun="All")


@pytest.mark.parametrize(
    ("limits", "given"),
    [
        pytest.param({}, {}, id="no GPU"),
        pytest.param(NVIDIA, {}, id="GPUs of NVIDIA's plugin"),
        pytest.param({}, {"labels": {keys.POD_GROUP_NAME: "any"}}, id="gang label"),
        pytest.param({}, {"labels": {keys.COMPUTE_CLASS: "gpu"}}, id="class"),
        pytest.param(
            {},
            {"spec": {"containers": [{"name": "c", "image": "none", "env": [ALL]}]}},
            id="variable",
        ),
    ],
)
def test_pod_that_linkwise_does_not_place_is_created_as_written(pods, limits, given):
    made = pods.create(limits, **given)

    assert gates(made) == []
    assert made["metadata"].get("labels", {}) == given.get("labels", {})


def test_pod_that_linkwise_places_is_refused_with_the_reason(pods):
    for limits in (GPU, {keys.GPU_MEM: 4}, {keys.NVIDIA_GPU_SHARED: 1}):
        assert "the webhook did not answer: create the pod again" in pods.refusal(limits)


def test_pod_with_our_gate_or_scheduler_is_created_with_its_variables(pods):
    limits = {name: str(amount) for name, amount in GPU.items()}
    main = {"name": "main", "image": "none", "env": [ALL], "resources": {"limits": limits}}
    own = {"containers": [main]}
    for name, given in (
        ("gated", {"schedulingGates": [{"name": keys.GANG}]}),
        ("scheduled", {"schedulerName": keys.SCHEDULER}),
    ):
        made = pods.create({}, name=name, spec={**own, **given})
        assert made["spec"]["containers"][0]["env"] == [ALL]


def test_pods_of_the_system_are_created_whatever_they_request(deserted):
    Pods(deserted.api, "kube-system").create(GPU, name="system", dryRun="All")


def test_controllers_create_their_pods(pods):
    labels = {"app": "web"}
    template = {
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "main", "image": "registry.example/none"}]},
    }
    spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
    path = f"/apis/apps/v1/namespaces/{pods.namespace}/deployments"
    pods.api.create(path, {"metadata": {"name": "web"}, "spec": spec})

    wait_until(lambda: len(pods.all()) == 2, "the Deployment has its pods")


def test_existing_pods_change_and_namespaces_come_and_go(pods):
    pods.create({}, name="old")
    pods.api.patch(f"{pods.path}/old", {"metadata": {"labels": {"any": "x"}}})
    pods.api.delete(f"{pods.path}/old", gracePeriodSeconds="0")
    made = pods.api.create(NAMESPACES, {"metadata": {"generateName": "e2e-"}})
    name = made["metadata"]["name"]
    pods.api.delete(f"{NAMESPACES}/{name}")

    wait_until(lambda: name not in names_of(pods.api), f"{name} is gone", 120)


def names_of(api):
    return {one["metadata"]["name"] for one in api.get(NAMESPACES)["items"]}


def test_config_maps_of_linkwise_are_stored_without_validation(deserted):
    path = f"{NAMESPACES}/{keys.PROFILE_NAMESPACE}/configmaps"
    body = {"metadata": {"name": keys.PROFILE_NAME}, "data": {keys.PROFILE_KEY: "["}}

    assert refusal(lambda: deserted.api.create(path, body, dryRun="All")) == ""


def test_emergency_stop_lets_all_pods_be_created_and_releases_those_that_wait(
    pods, deserted, tmp_path
):
    held = pods.create(GPU, name="held", spec={"schedulingGates": [{"name": keys.GANG}]})
    assert gates(held) == [keys.GANG]
    path = os.pathsep.join((str(tmp_path), os.environ["PATH"]))
    (tmp_path / "kubectl").symlink_to(deserted.site.binaries["kubectl"])

    stopped = subprocess.run(
        [ROOT / "manifests/emergency-stop"],
        env={"PATH": path, "KUBECONFIG": str(deserted.kubeconfig), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )

    assert (stopped.returncode, complaints(stopped.stderr)) == (0, "")
    assert gates(pods.all()["held"]) == []
    wait_until(lambda: refused(pods.api, pods.namespace) == "", "nothing is in the way")
    with pytest.raises(ApiError, match="404"):
        deserted.api.get(MUTATING)
