"""The control plane that the other end-to-end tests stand on."""

import json
import ssl

import pytest
from controlplane.api import Api, ApiError
from controlplane.process import wait_until

pytestmark = pytest.mark.usefixtures("bare")

GPU_NODE = {"name": "gpu", "count": 2, "machine": "dgx1-v100", "mode": "topology"}


def pod(name, gpus):
    return {"metadata": {"name": name}, "spec": container_alone(gpus)}


def container_alone(gpus):
    limits = {"aliyun.com/gpu": str(gpus)} if gpus else {}
    container = {"name": "main", "image": "registry.example/none", "resources": {"limits": limits}}
    return {"containers": [container]}


def names_of_running(pods):
    return {one["metadata"]["name"] for one in pods["items"] if one["status"]["phase"] == "Running"}


def may_list(api, path):
    try:
        return api.get(path)["kind"] == "PodList"
    except ApiError:
        return False


def test_a_pod_is_bound_to_a_node_that_has_its_gpus_and_runs_there(plane, namespace, nodes):
    names = {node.name for node in nodes(GPU_NODE)}
    pods = f"/api/v1/namespaces/{namespace}/pods"
    plane.api.create(pods, pod("train", 8))
    wait_until(
        lambda: plane.api.get(f"{pods}/train")["status"]["phase"] == "Running", "the pod runs"
    )
    assert plane.api.get(f"{pods}/train")["spec"]["nodeName"] in names


def test_a_pod_that_asks_for_more_gpus_than_a_node_has_is_not_bound(plane, namespace, nodes):
    nodes(GPU_NODE)
    pods = f"/api/v1/namespaces/{namespace}/pods"
    plane.api.create(pods, pod("big", 9))

    def is_unschedulable():
        conditions = plane.api.get(f"{pods}/big")["status"].get("conditions", [])
        return any("Insufficient aliyun.com/gpu" in one.get("message", "") for one in conditions)

    wait_until(is_unschedulable, "the scheduler reports the missing resource")


def test_a_restart_of_the_api_server_keeps_address_and_data(plane, namespace):
    maps = f"/api/v1/namespaces/{namespace}/configmaps"
    plane.api.create(maps, {"metadata": {"name": "kept"}, "data": {"key": "value"}})
    server, pid = plane.server, plane.process("kube-apiserver").pid
    plane.restart_api_server()
    assert (plane.server, plane.api.get(f"{maps}/kept")["data"]) == (server, {"key": "value"})
    assert plane.process("kube-apiserver").pid != pid


def test_a_paused_api_server_says_nothing_and_goes_on_afterwards(plane):
    context = ssl.create_default_context(cafile=str(plane.ca_file))
    impatient = Api(plane.server, plane.api.token, context, timeout=0.5)
    with plane.paused(), pytest.raises(OSError, match="timed out"):
        impatient.text("/readyz")
    wait_until(lambda: plane.api.text("/readyz") == "ok", "it is ready again")


def test_a_service_account_may_do_what_its_role_says_and_nothing_else(plane, namespace):
    home = f"/api/v1/namespaces/{namespace}"
    plane.api.create(f"{home}/serviceaccounts", {"metadata": {"name": "reader"}})
    api = plane.api_as(plane.token(namespace, "reader"))
    with pytest.raises(ApiError, match="cannot list") as refused:
        api.get(f"{home}/pods")
    assert refused.value.status == 403
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}
    plane.api.create(f"{rbac}/roles", {"metadata": {"name": "read"}, "rules": [rule]})
    plane.api.create(
        f"{rbac}/rolebindings",
        {
            "metadata": {"name": "read"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "read"},
            "subjects": [{"kind": "ServiceAccount", "name": "reader", "namespace": namespace}],
        },
    )
    wait_until(lambda: may_list(api, f"{home}/pods"), "the role is in force")
    with pytest.raises(ApiError, match="cannot create"):
        api.create(f"{home}/pods", pod("mine", 1))


def test_kubectl_speaks_to_it_and_a_server_side_dry_run_changes_nothing(plane, namespace):
    manifest = {"apiVersion": "v1", "kind": "Pod", **pod("dry", 1)}
    applied = plane.kubectl(
        "apply", "--dry-run=server", f"--namespace={namespace}", "-f-", stdin=json.dumps(manifest)
    )
    assert (applied.returncode, applied.stdout) == (0, "pod/dry created (server dry run)\n")
    assert plane.api.get(f"/api/v1/namespaces/{namespace}/pods")["items"] == []


def test_a_deployment_makes_pods_that_run(plane, namespace, nodes):
    nodes(GPU_NODE)
    labels = {"app": "serve"}
    template = {"metadata": {"labels": labels}, "spec": container_alone(1)}
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    spec = {"replicas": 3, "selector": {"matchLabels": labels}, "template": template}
    plane.api.create(path, {"metadata": {"name": "serve"}, "spec": spec})
    wait_until(
        lambda: plane.api.get(f"{path}/serve")["status"].get("readyReplicas") == 3, "three run"
    )


@pytest.mark.usefixtures("training_operator")
def test_training_operator_makes_the_pods_of_an_mpi_job(plane, namespace, nodes):
    nodes(GPU_NODE)
    replicas = {
        "Launcher": {"replicas": 1, "template": {"spec": container_alone(gpus=0)}},
        "Worker": {"replicas": 2, "template": {"spec": container_alone(gpus=4)}},
    }
    jobs = f"/apis/kubeflow.org/v1/namespaces/{namespace}/mpijobs"
    job = {"apiVersion": "kubeflow.org/v1", "kind": "MPIJob", "metadata": {"name": "train"}}
    plane.api.create(jobs, {**job, "spec": {"mpiReplicaSpecs": replicas}})
    pods = f"/api/v1/namespaces/{namespace}/pods"
    running = {"train-launcher", "train-worker-0", "train-worker-1"}
    wait_until(lambda: names_of_running(plane.api.get(pods)) == running, "all of it runs")
