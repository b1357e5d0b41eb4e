"""Volcano's Jobs on a real API server: with Volcano's scheduler, and placed by Linkwise.

Volcano itself does not run. The pods are those that its controller creates (release 1.12), and a
test binds them as its scheduler does.
"""

import pytest
from controlplane.api import Object
from controlplane.definitions import define
from controlplane.gangs import delete_pods, make_gang, wait_for_phase
from controlplane.plane import control_plane
from controlplane.pods import Pods, container, gates
from controlplane.process import wait_until

from linkwise.cluster import keys

API = "batch.volcano.sh/v1alpha1"
WORKERS = 5
NODE = "gpu-0"
PATIENCE = 120
POLICY = """
apiVersion: linkwise.dev/v1alpha1
kind: Policy
gangs: {kinds: [Job.batch.volcano.sh]}
"""


@pytest.fixture(scope="module")
def plane(programs_without_completion, tmp_path_factory):
    with control_plane(tmp_path_factory.mktemp("plane"), programs_without_completion) as plane:
        define(plane.api, "batch.volcano.sh", "Job", "v1alpha1")
        yield plane


@pytest.fixture
def counted(placing, nodes):
    """A node of NVIDIA's plugin with 8 GPUs."""
    nodes({"name": "gpu", "count": 1, "machine": "dgx1-v100", "cpu": 96, "memory": "768Gi"})
    return placing


def create_job(pods: Pods, scheduler: str) -> Object:
    template = {"spec": {"containers": [container({keys.NVIDIA_GPU: 1})]}}
    body = {
        "apiVersion": API,
        "kind": "Job",
        "metadata": {"name": "train"},
        "spec": {
            "schedulerName": scheduler,
            "minAvailable": WORKERS,
            "tasks": [{"name": "worker", "replicas": WORKERS, "template": template}],
        },
    }
    return pods.api.create(f"/apis/{API}/namespaces/{pods.namespace}/jobs", body)


def create_pods(pods: Pods, job: Object) -> list[Object]:
    """Create the pods of a Job as Volcano's controller does."""
    owner = {"apiVersion": API, "kind": "Job", "name": "train", "uid": job["metadata"]["uid"]}
    marks = {"volcano.sh/job-name": "train", "volcano.sh/task-spec": "worker"}
    group = {"scheduling.k8s.io/group-name": f"train-{job['metadata']['uid']}"}
    [task] = job["spec"]["tasks"]
    return [
        pods.api.create(
            pods.path,
            {
                "metadata": {
                    "name": f"train-worker-{index}",
                    "labels": marks,
                    "annotations": {**marks, **group},
                    "ownerReferences": [{**owner, "controller": True}],
                },
                "spec": {**task["template"]["spec"], "schedulerName": job["spec"]["schedulerName"]},
            },
        )
        for index in range(task["replicas"])
    ]


def bind(pods: Pods, name: str) -> None:
    target = {"apiVersion": "v1", "kind": "Node", "name": NODE}
    pods.api.create(f"{pods.path}/{name}/binding", {"metadata": {"name": name}, "target": target})


@pytest.mark.usefixtures("counted")
def test_pods_of_volcanos_scheduler_are_left_alone_and_counted(pods, policy):
    policy(POLICY)
    made = create_pods(pods, create_job(pods, "volcano"))
    assert [gates(pod) for pod in made] == [[]] * WORKERS
    for pod in made:
        bind(pods, pod["metadata"]["name"])

    make_gang(pods, "ours", 4, 1, resource=keys.NVIDIA_GPU)
    wait_for_phase(pods, "ours", "Waiting", "3 of 4 workers fit now", members="4/4")
    assert pods.bound() == {pod["metadata"]["name"] for pod in made}

    delete_pods(pods, "train-worker-0")
    wait_for_phase(pods, "ours", "Placed", members="4/4")


@pytest.mark.usefixtures("counted")
def test_a_volcano_job_for_the_default_scheduler_is_placed_as_a_whole(pods, policy):
    policy(POLICY)
    make_gang(pods, "other", 4, 1, resource=keys.NVIDIA_GPU)
    wait_for_phase(pods, "other", "Placed", members="4/4")
    job = create_job(pods, "default-scheduler")

    def is_gated() -> bool:
        made = create_pods(pods, job)
        if all(gates(pod) == [keys.GANG] for pod in made):
            return True
        delete_pods(pods, *(pod["metadata"]["name"] for pod in made))
        return False

    wait_until(is_gated, "admission knows the policy", PATIENCE)
    wait_for_phase(pods, "train", "Waiting", "4 of 5 workers fit now", members="5/5")

    delete_pods(pods, "other-0")
    gang = wait_for_phase(pods, "train", "Placed", members="5/5")
    assert [owner["kind"] for owner in gang["metadata"]["ownerReferences"]] == ["Job"]
    assert {f"train-worker-{index}" for index in range(WORKERS)} <= pods.bound()
