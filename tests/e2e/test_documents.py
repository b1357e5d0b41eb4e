"""Examples from the documentation of ACK, ACS, arena and gpushare on a real API server."""

import pytest
import yaml
from controlplane.pods import container, gates, required, variables
from controlplane.process import wait_until
from support.documents import COMPUTE_SHARE, GPUSHARE, HPN, HPN_MODEL, MODEL_AND_DRIVER, PROFILE

from linkwise.admission.patch.device_variables import NO_GPU
from linkwise.cluster import container_variables, keys


@pytest.fixture
def apply(webhook, namespace):
    """Applies a manifest with kubectl, in a namespace of the test's own."""

    def apply(text):
        home = () if "namespace:" in text else (f"--namespace={namespace}",)
        return webhook.plane.kubectl("apply", *home, "-f-", stdin=text)

    return apply


def only(pods):
    """Return the only pod, as soon as it is there."""
    wait_until(lambda: len(pods.all()) == 1, "one pod is there")
    (made,) = pods.all().values()
    return made


# ---- Compute share.


def test_a_job_with_a_compute_share_makes_a_pod_for_nodes_that_give_out_compute(apply, pods):
    assert apply(COMPUTE_SHARE).returncode == 0

    made = only(pods)
    assert required(made) == {keys.NODE_MODE: ["core_mem"]}
    assert gates(made) == [keys.GANG]
    assert variables(made)[keys.MEM_CONTAINER] == "2"


def test_a_job_with_a_compute_share_of_32_percent_makes_no_pod_and_its_event_says_why(
    webhook, apply, pods
):
    apply(COMPUTE_SHARE.replace("percentage: 30", "percentage: 32"))

    def has_event():
        shown = webhook.plane.kubectl(
            "get", "events", f"--namespace={pods.namespace}", "--field-selector=reason=FailedCreate"
        )
        return "LW101" in shown.stdout and "30 or 35" in shown.stdout

    wait_until(has_event, "the Job's event says why")
    assert pods.all() == {}


# ---- Model and driver.


def test_the_placeholder_model_is_denied_with_the_list_and_t4_is_made(apply, pods):
    denied = apply(MODEL_AND_DRIVER)
    assert denied.returncode == 1
    assert "placeholder" in denied.stderr
    assert "P16EN" in denied.stderr

    assert apply(MODEL_AND_DRIVER.replace("example-model", "T4")).returncode == 0
    assert required(only(pods)) == {
        keys.MODEL_SERIES: ["T4"],
        keys.DRIVER_VERSION: ["535.161.08"],
    }


AFFINITY = """\
  affinity:
    nodeAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
        nodeSelectorTerms:
        - matchExpressions:
          - {key: alibabacloud.com/gpu-model-series, operator: In, values: [example-model]}
"""
SELECTOR = """\
  nodeSelector:
    alibabacloud.com/gpu-model-series: "example-model"
"""


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(HPN_MODEL, id="nodeSelector"),
        pytest.param(HPN_MODEL.replace(SELECTOR, AFFINITY), id="affinity"),
    ],
)
def test_the_placeholder_model_of_gpu_hpn_is_denied_where_it_stands_and_p16en_is_made(
    apply, pods, text
):
    denied = apply(text)
    assert denied.returncode == 1
    assert "LW203" in denied.stderr
    assert "placeholder" in denied.stderr

    driver = text.replace("example-model", "P16EN").replace("1.5.0", "535.161.08")
    denied = apply(driver)
    assert denied.returncode == 1
    assert "LW204" in denied.stderr
    assert "1.5.4" in denied.stderr

    assert pods.all() == {}
    assert apply(text.replace("example-model", "P16EN")).returncode == 0
    assert gates(only(pods)) == []


def test_a_profile_gives_gpu_hpn_its_driver_unless_the_pod_says_otherwise(apply, pods, profiles):
    # So that what is applied here goes at the end.
    profiles("[]")
    assert apply(PROFILE).returncode == 0
    hpn = yaml.safe_load(HPN)
    hpn["spec"]["containers"][0]["image"] = "registry.example/none"

    def driver(**labels):
        body = {
            **hpn,
            "metadata": {"name": "hpn", "labels": {**hpn["metadata"]["labels"], **labels}},
        }
        made = pods.api.create(pods.path, body, dryRun="All")
        return made["metadata"]["labels"].get(keys.DRIVER_VERSION)

    wait_until(lambda: driver() == "1.5.0", "the profile is in force")
    assert driver(**{keys.DRIVER_VERSION: "1.5.4"}) == "1.5.4"
    made = pods.api.create(pods.path, hpn)
    assert required(made) == {keys.NODE_TYPE: ["reserved"]}


# ---- Memory share.


def test_gpushares_pod_sees_only_its_own_card_whatever_its_variable_says(apply, pods):
    applied = apply(GPUSHARE)
    assert applied.returncode == 0
    assert container_variables.ENV_VISIBLE_DEVICES in applied.stderr

    env = variables(only(pods))
    assert (
        keys.VISIBLE_DEVICES
        in env[container_variables.ENV_VISIBLE_DEVICES]["fieldRef"]["fieldPath"]
    )
    assert env[keys.MEM_CONTAINER] == "5"


# ---- Topology-aware gang.


@pytest.mark.usefixtures("training_operator")
def test_of_an_mpi_job_with_arenas_labels_workers_wait_as_a_gang_and_the_launcher_sees_no_gpu(
    pods, nodes
):
    nodes({"name": "gpu", "count": 2, "machine": "dgx1-v100", "mode": "topology"})
    labels = {
        keys.POD_GROUP_NAME: "mpijob-topo",
        keys.POD_GROUP_MIN_AVAILABLE: "4",
        "gpu-topology": "topo",
        keys.GPU_TOPOLOGY_REPLICA: "4",
    }

    def role(replicas, limits):
        spec = {
            "hostNetwork": True,
            "dnsPolicy": "ClusterFirstWithHostNet",
            "containers": [container(limits)],
        }
        return {"replicas": replicas, "template": {"metadata": {"labels": labels}, "spec": spec}}

    replicas = {"Launcher": role(1, {}), "Worker": role(4, {keys.GPU_WHOLE: 1})}
    pods.api.create(
        f"/apis/kubeflow.org/v1/namespaces/{pods.namespace}/mpijobs",
        {
            "apiVersion": "kubeflow.org/v1",
            "kind": "MPIJob",
            "metadata": {"name": "topo"},
            "spec": {"mpiReplicaSpecs": replicas},
        },
    )

    workers = {f"topo-worker-{index}" for index in range(4)}
    wait_until(lambda: pods.all().keys() == {*workers, "topo-launcher"}, "all pods are made")
    made = pods.all()
    for name in workers:
        assert gates(made[name]) == [keys.GANG]
        assert required(made[name]) == {keys.NODE_MODE: ["topology"]}
        assert "fieldRef" in variables(made[name])[container_variables.ENV_VISIBLE_DEVICES]
    launcher = made["topo-launcher"]
    assert (gates(launcher), required(launcher)) == ([], {})
    # The operator hides GPUs from the launcher by an empty value of its own, which stands.
    assert variables(launcher)[container_variables.ENV_VISIBLE_DEVICES] is None
    assert {"name": container_variables.ENV_VISIBLE_DEVICES, "value": NO_GPU} in [
        one for init in launcher["spec"]["initContainers"] for one in init["env"]
    ]
    wait_until(
        lambda: pods.all()["topo-launcher"]["status"]["phase"] == "Running", "the launcher runs"
    )
    assert {pods.all()[name]["status"]["phase"] for name in workers} == {"Pending"}
