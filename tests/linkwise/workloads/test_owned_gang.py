import pytest

from linkwise.cluster import keys
from linkwise.cluster.objects.metadata import NewMetadata, NewOwner
from linkwise.cluster.objects.pod import NewPod, NewPodSpec
from linkwise.workloads import operator_keys
from linkwise.workloads.owned_gang import owned_gang
from linkwise.workloads.registry import GANG_KINDS as ALL


def a_pod(api_version, kind, name="owner", labels=None, *, controller=True):
    owner = NewOwner(api_version=api_version, kind=kind, name=name, controller=controller)
    return NewPod(NewMetadata(labels=labels, owner_references=[owner]), NewPodSpec())


@pytest.mark.parametrize(
    ("api_version", "kind", "labels", "found"),
    [
        pytest.param("kubeflow.org/v1", "MPIJob", {}, ("MPIJob", "owner"), id="mpi-v1"),
        pytest.param("kubeflow.org/v2beta1", "MPIJob", {}, ("MPIJob", "owner"), id="mpi-v2beta1"),
        pytest.param(
            "apps/v1",
            "StatefulSet",
            {operator_keys.MPI_JOB_NAME: "train", operator_keys.MPI_ROLE_TYPE: "worker"},
            ("MPIJob", "train"),
            id="mpi-v1alpha1",
        ),
        pytest.param(
            "batch/v1",
            "Job",
            {operator_keys.JOB_NAME: "train"},
            ("MPIJob", "train"),
            id="launcher-v2beta1",
        ),
        pytest.param("kubeflow.org/v1", "PyTorchJob", {}, ("PyTorchJob", "owner"), id="pytorch"),
        pytest.param("kubeflow.org/v1", "TFJob", {}, ("TFJob", "owner"), id="tf"),
        pytest.param(
            "batch/v1",
            "Job",
            {operator_keys.JOBSET_NAME: "train"},
            ("JobSet", "train"),
            id="job-set",
        ),
        pytest.param(
            "apps/v1",
            "StatefulSet",
            {keys.LWS_NAME: "serve", keys.LWS_GROUP_INDEX: "1"},
            ("LeaderWorkerSet", "serve"),
            id="leader-worker-set",
        ),
        pytest.param("ray.io/v1", "RayCluster", {}, ("RayCluster", "owner"), id="ray"),
        pytest.param(
            "batch.volcano.sh/v1alpha1", "Job", {}, ("Job.batch.volcano.sh", "owner"), id="volcano"
        ),
        pytest.param("batch/v1", "Job", {}, None, id="batch-job"),
        pytest.param("apps/v1", "StatefulSet", {}, None, id="stateful-set"),
        pytest.param("example.org/v1", "MPIJob", {}, None, id="other-group"),
        pytest.param("", "", {operator_keys.MPI_JOB_NAME: "train"}, None, id="unknown-owner"),
    ],
)
def test_gang_is_found_by_the_controller(api_version, kind, labels, found):
    assert owned_gang(a_pod(api_version, kind, labels=labels), ALL) == found


@pytest.mark.parametrize(
    ("pod", "kinds"),
    [
        pytest.param(a_pod("kubeflow.org/v1", "MPIJob"), ("JobSet",), id="kind-not-in-policy"),
        pytest.param(a_pod("kubeflow.org/v1", "MPIJob"), (), id="no-kinds"),
        pytest.param(
            a_pod("kubeflow.org/v1", "MPIJob", labels={keys.GANG: "false"}), ALL, id="taken-out"
        ),
        pytest.param(
            a_pod("kubeflow.org/v1", "MPIJob", controller=False), ALL, id="not-its-controller"
        ),
        pytest.param(a_pod("kubeflow.org/v1", "MPIJob", name=""), ALL, id="no-name"),
        pytest.param(a_pod("kubeflow.org/v1", "MPIJob", name="x" * 254), ALL, id="no-valid-name"),
    ],
)
def test_other_pods_are_no_gang(pod, kinds):
    assert owned_gang(pod, kinds) is None


def test_a_label_of_another_value_leaves_the_pod_in_its_gang():
    pod = a_pod("kubeflow.org/v1", "MPIJob", labels={keys.GANG: "true"})

    assert owned_gang(pod, ALL) == ("MPIJob", "owner")
