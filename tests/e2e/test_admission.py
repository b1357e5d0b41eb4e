"""Admission on a real API server: what becomes of pods that a plain client creates."""

import re

import pytest
from controlplane.api import refusal
from controlplane.pods import a_pod, gates, required, variables
from controlplane.process import wait_until

from linkwise.admission.patch.device_variables import NO_GPU
from linkwise.cluster import container_variables, keys

SHARED = """
sharing:
  groups:
  - config:
      sharing:
        timeSlicing:
          renameByDefault: true
          failRequestsGreaterThanOne: true
          resources: [{name: nvidia.com/gpu, replicas: 4}]
"""


# ---- What pods ask for.


def test_memory_and_compute_go_where_both_are_given_out(pods):
    pod = pods.create({keys.GPU_MEM: 2, keys.GPU_CORE: 20})

    assert required(pod) == {keys.NODE_MODE: ["core_mem"]}
    assert gates(pod) == [keys.GANG]


def test_memory_alone_needs_no_label_and_its_env_refers_to_the_record(pods):
    pod = pods.create({keys.GPU_MEM: 5})

    reference = variables(pod)[container_variables.ENV_VISIBLE_DEVICES]["fieldRef"]["fieldPath"]
    assert required(pod) == {}
    assert keys.VISIBLE_DEVICES in reference
    assert variables(pod)[keys.MEM_CONTAINER] == "5"


@pytest.mark.parametrize(
    ("limits", "reply"),
    [
        pytest.param({keys.GPU_MEM: 2, keys.GPU_CORE: 22}, "20 or 25", id="core 22"),
        pytest.param({keys.GPU_CORE: 20}, keys.GPU_MEM, id="compute alone"),
        pytest.param({keys.GPU_MEM: 2, keys.GPU_WHOLE: 1}, "LW107", id="two families"),
    ],
)
def test_a_bad_request_is_denied_with_its_field_and_its_remedy(pods, limits, reply):
    message = pods.refusal(limits)

    assert 'admission webhook "pods.linkwise.dev" denied the request' in message
    assert "spec.containers[0].resources.limits[" in message
    assert reply in message


def test_all_problems_come_in_one_answer(pods):
    labels = {keys.COMPUTE_CLASS: "fast"}

    message = pods.refusal({keys.GPU_MEM: 2, keys.GPU_CORE: 22}, labels=labels)

    assert {"LW101", "LW201"} <= set(re.findall(r"LW\d+", message))


# ---- Classes, models, drivers.


def test_a_model_and_a_driver_that_exist_become_affinity(pods):
    labels = {keys.COMPUTE_CLASS: "gpu", keys.MODEL_SERIES: "T4", keys.DRIVER_VERSION: "535.161.08"}

    pod = pods.create({keys.NVIDIA_GPU: 1}, labels=labels)

    assert required(pod) == {keys.MODEL_SERIES: ["T4"], keys.DRIVER_VERSION: ["535.161.08"]}


@pytest.mark.parametrize(
    ("model", "driver", "reply"),
    [
        pytest.param("example-model", "535.161.08", "placeholder", id="example"),
        pytest.param("T4", "1.2.3", "525.105.17", id="driver"),
    ],
)
def test_model_or_driver_that_the_catalogue_lacks_is_denied_with_its_entries(
    pods, model, driver, reply
):
    labels = {keys.COMPUTE_CLASS: "gpu", keys.MODEL_SERIES: model, keys.DRIVER_VERSION: driver}

    assert reply in pods.refusal({keys.NVIDIA_GPU: 1}, labels=labels)


def test_more_shared_gpus_than_one_are_denied_at_creation(pods, policy):
    policy(SHARED)

    wait_until(
        lambda: "LW301" in pods.refusal({keys.NVIDIA_GPU_SHARED: 2}, dryRun="All"),
        "the policy is in force",
    )
    assert gates(pods.create({keys.NVIDIA_GPU_SHARED: 1})) == []


# ---- Priority.


@pytest.fixture
def classes(plane):
    """Two priority classes of one value; the second never preempts."""
    path = "/apis/scheduling.k8s.io/v1/priorityclasses"
    plane.api.create(path, {"metadata": {"name": "high"}, "value": 1000})
    waits = {"metadata": {"name": "high-waits"}, "value": 1000, "preemptionPolicy": "Never"}
    plane.api.create(path, waits)
    pod = a_pod("probe", priorityClassName="high-waits")
    default = "/api/v1/namespaces/default/pods"
    wait_until(
        lambda: refusal(lambda: plane.api.create(default, pod, dryRun="All")) == "",
        "the classes are known",
    )
    yield
    for name in ("high", "high-waits"):
        plane.api.delete(f"{path}/{name}")


@pytest.mark.usefixtures("classes")
def test_gated_pods_get_the_non_preempting_class_of_the_policy(pods, policy):
    policy("gangs: {nonPreemptingClasses: {high: high-waits}}")

    def priority(limits, **query):
        spec = pods.create(limits, spec={"priorityClassName": "high"}, **query)["spec"]
        return spec["priorityClassName"], spec["priority"], spec["preemptionPolicy"]

    wait_until(
        lambda: priority({keys.GPU_WHOLE: 1}, dryRun="All")[0] == "high-waits",
        "the policy is in force",
    )
    assert priority({keys.GPU_WHOLE: 1}, name="held") == ("high-waits", 1000, "Never")
    others = priority({keys.NVIDIA_GPU: 1}, name="other")
    assert others == ("high", 1000, "PreemptLowerPriority")


# ---- Gangs and controllers.


def test_of_a_gang_as_arena_makes_it_workers_are_gated_and_the_launcher_is_not(pods):
    labels = {
        "gpu-topology": "job",
        keys.GPU_TOPOLOGY_REPLICA: "4",
        keys.POD_GROUP_NAME: "job",
        keys.POD_GROUP_MIN_AVAILABLE: "4",
    }

    worker = pods.create({keys.GPU_WHOLE: 1}, name="job-worker-0", labels=labels)
    launcher = pods.create({}, name="job-launcher", labels=labels)

    assert (gates(worker), gates(launcher)) == ([keys.GANG], [])
    assert required(worker) == {keys.NODE_MODE: ["topology"]}
    assert variables(launcher) == {container_variables.ENV_VISIBLE_DEVICES: NO_GPU}


def test_pods_of_a_deployment_are_made_as_one_asks_them_to_be(pods, namespace):
    labels = {"app": "serve"}
    container = {
        "name": "main",
        "image": "registry.example/none",
        "resources": {"limits": {keys.GPU_WHOLE: "1"}},
    }
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"replicas": 3, "selector": {"matchLabels": labels}, "template": template}
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    pods.api.create(path, {"metadata": {"name": "serve"}, "spec": spec})

    wait_until(lambda: len(pods.all()) == 3, "three pods are there")
    assert all(gates(pod) == [keys.GANG] for pod in pods.all().values())
