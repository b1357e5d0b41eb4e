"""Attempts of a tenant with the role `edit` to bypass admission, on a real API server."""

import sys

import pytest
from controlplane.api import refusal
from controlplane.pods import a_pod, gates, variables
from controlplane.process import wait_until

from linkwise.admission.patch.device_variables import NO_GPU
from linkwise.cluster import container_variables, keys

NODE = "gpu-0"
WHOLE = {keys.GPU_WHOLE: 8}
ALL = {"name": container_variables.ENV_VISIBLE_DEVICES, "value": "all"}
MANY = {f"label-{number}": "" for number in range(5000)}
RBAC = "/apis/rbac.authorization.k8s.io/v1"


@pytest.fixture
def tenant(plane, namespace):
    """The API server as a ServiceAccount sees it that may edit its own namespace."""
    account = {"kind": "ServiceAccount", "name": "tenant", "namespace": namespace}
    home = f"/api/v1/namespaces/{namespace}"
    plane.api.create(f"{home}/serviceaccounts", {"metadata": {"name": "tenant"}})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"}
    binding = {"metadata": {"name": "tenant"}, "roleRef": role, "subjects": [account]}
    plane.api.create(f"{RBAC}/namespaces/{namespace}/rolebindings", binding)
    api = plane.api_as(plane.token(namespace, "tenant"))
    wait_until(lambda: refusal(lambda: api.get(f"{home}/pods")) == "", "the tenant may edit")
    return api


@pytest.fixture
def path(namespace):
    return f"/api/v1/namespaces/{namespace}/pods"


def on_a_node(limits=WHOLE, **given):
    return a_pod("taker", limits, nodeName=NODE, **given)


@pytest.fixture(autouse=True)
def depth():
    """JSON may be as deep as an API server reads it."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(50_000)
    yield
    sys.setrecursionlimit(before)


def nested(pod):
    """Return a pod with deep managed fields, which an API server keeps and sends as they are."""
    fields = {}
    for _ in range(9000):
        fields = {"f:a": fields}
    entry = {"manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1"}
    pod["metadata"]["managedFields"] = [{**entry, "fieldsV1": fields}]
    return pod


def takers():
    ours = {"schedulerName": keys.SCHEDULER}
    mirror = {keys.MIRROR_POD: "x"}
    precise = {**WHOLE, "memory": "1" * 70}
    init = [{"name": f"i{number}", "image": "none"} for number in range(1100)]
    return {
        "as it is": on_a_node(),
        "our scheduler": on_a_node(**ours),
        "mirror pod": on_a_node(annotations=mirror),
        "mirror pod, our scheduler": on_a_node(annotations=mirror, **ours),
        "many labels": on_a_node(labels=MANY, **ours),
        "many containers": on_a_node(initContainers=init, **ours),
        "long amount": on_a_node(precise, **ours),
        "large": on_a_node(annotations={"large": "<" * 200_000}, **ours),
        "larger": on_a_node(
            containers=[
                {
                    "name": "main",
                    "image": "none",
                    "env": [{"name": "LARGE", "value": "<" * 1_000_000}],
                    "resources": {"limits": {keys.GPU_WHOLE: "8"}},
                }
            ],
            **ours,
        ),
        "deep": nested(on_a_node(**ours)),
        "replica": on_a_node({keys.NVIDIA_GPU_SHARED: 1}),
        "replica, mirror pod": on_a_node({keys.NVIDIA_GPU_SHARED: 1}, annotations=mirror),
    }


@pytest.mark.parametrize(
    "name",
    [
        "as it is",
        "our scheduler",
        "mirror pod",
        "mirror pod, our scheduler",
        "many labels",
        "many containers",
        "long amount",
        "large",
        "larger",
        "deep",
        "replica",
        "replica, mirror pod",
    ],
)
@pytest.mark.usefixtures("webhook")
def test_a_pod_that_names_a_node_and_asks_for_its_gpus_is_refused(tenant, path, name):
    assert refusal(lambda: tenant.create(path, takers()[name])) != ""
    assert tenant.get(path)["items"] == []


@pytest.mark.usefixtures("webhook")
def test_a_controller_cannot_name_the_node_for_a_tenant_either(tenant, namespace, path):
    labels = {"app": "taker"}
    template = {"metadata": {"labels": labels}, "spec": on_a_node()["spec"]}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    sets = f"/apis/apps/v1/namespaces/{namespace}/replicasets"
    tenant.create(sets, {"metadata": {"name": "taker"}, "spec": {"replicas": 1, **spec}})

    def refused():
        status = tenant.get(f"{sets}/taker").get("status", {})
        return [one["message"] for one in status.get("conditions", [])]

    wait_until(lambda: refused() != [], "its controller is refused")
    assert "nodeName" in refused()[0]
    assert tenant.get(path)["items"] == []


def test_a_pod_that_asks_for_0_gpus_of_a_node_takes_none_and_the_node_stays_in_use(
    tenant, path, machines, placing
):
    machines(1)
    tenant.create(path, on_a_node({keys.GPU_WHOLE: 0}))

    tenant.create(path, a_pod("honest", WHOLE))

    def placed():
        return tenant.get(f"{path}/honest")["spec"].get("nodeName") == NODE

    wait_until(placed, "another tenant's pod has all GPUs of the node")
    assert placing.metrics["linkwise_unaccounted_nodes"] == 0


# ---- GPUs by the environment.


@pytest.fixture
def environment(policy, tenant, path):
    """Writes what becomes of variables, and waits until it is in force."""

    def write(word, holds):
        policy(f"environment: {word}")
        probe = a_pod("probe", containers=[container(ALL)])
        wait_until(lambda: holds(tenant, path, probe), f"environment: {word} is in force")

    return write


def container(*env, name="main", **given):
    return {"name": name, "image": "registry.example/cuda", "env": list(env), **given}


@pytest.mark.usefixtures("webhook")
def test_a_pod_that_asks_for_no_gpu_sees_none_whatever_its_variable_says(tenant, path):
    init = [container(ALL, name="init")]

    made = tenant.create(path, a_pod("all", containers=[container(ALL)], initContainers=init))

    assert variables(made) == {container_variables.ENV_VISIBLE_DEVICES: NO_GPU}
    assert made["spec"]["initContainers"][0]["env"] == [{**ALL, "value": NO_GPU}]


def evaders():
    def choosing(*env):
        return a_pod("all", containers=[container(*env)])

    # Each bound of the registration's conditions is kept, and the last variable is the one.
    crowd = [
        container(*[{"name": "A"}] * 1000, *([ALL] if number == 63 else []), name=f"c{number}")
        for number in range(64)
    ]
    return {
        "many variables": choosing(*[{"name": "A", "value": "b"}] * 100_000, ALL),
        "large variable": choosing({"name": "A", "value": "<" * 1_000_000}, ALL),
        "deep": nested(choosing(ALL)),
        "many containers of many variables": a_pod("all", containers=crowd),
    }


@pytest.mark.parametrize(
    "name", ["many variables", "large variable", "deep", "many containers of many variables"]
)
@pytest.mark.usefixtures("webhook")
def test_a_pod_too_large_or_too_deep_to_be_judged_does_not_get_past(tenant, path, name):
    refusal(lambda: tenant.create(path, evaders()[name]))

    kept = [
        variables(one, -1)[container_variables.ENV_VISIBLE_DEVICES]
        for one in tenant.get(path)["items"]
    ]
    assert kept in ([], [NO_GPU])


def test_the_policy_refuses_such_a_variable_or_allows_it(tenant, path, environment):
    environment(
        "refuse",
        lambda api, path, pod: "LW118" in refusal(lambda: api.create(path, pod, dryRun="All")),
    )
    environment(
        "allow", lambda api, path, pod: variables(api.create(path, pod, dryRun="All")) == as_is()
    )
    assert gates(tenant.create(path, a_pod("asks", {keys.GPU_WHOLE: 1}))) == [keys.GANG]


def as_is():
    return {container_variables.ENV_VISIBLE_DEVICES: "all"}
