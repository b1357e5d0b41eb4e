"""Objects that a tenant nests as deep as an API server reads JSON: they hide no other object."""

import sys

import pytest
from controlplane.api import refusal
from controlplane.pods import Pods, a_pod
from controlplane.process import wait_until
from controlplane.scorer import run_scorer

from linkwise.cluster import keys

RBAC = "/apis/rbac.authorization.k8s.io/v1"
DEPTHS = (1500, 9000, 9980)
"""An API server reads 10,000 levels, all of the object counted."""


@pytest.fixture(autouse=True)
def depth():
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(50_000)
    yield
    sys.setrecursionlimit(before)


@pytest.fixture
def tenant(plane, namespace):
    """The namespace's pods, as its users write them."""
    subject = {"kind": "ServiceAccount", "name": "default", "namespace": namespace}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"}
    binding = {"metadata": {"name": "tenant"}, "roleRef": role, "subjects": [subject]}
    plane.api.create(f"{RBAC}/namespaces/{namespace}/rolebindings", binding)
    pods = Pods(plane.api_as(plane.token(namespace, "default")), namespace)
    wait_until(lambda: refusal(lambda: pods.api.get(pods.path)) == "", "the tenant may edit")
    return pods


def nested(body, depth, version="v1"):
    """Return an object with deep managed fields, which an API server keeps and sends."""
    fields = {}
    for _ in range(depth):
        fields = {"f:a": fields}
    entry = {"manager": "m", "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": fields}
    body["metadata"]["managedFields"] = [{**entry, "apiVersion": version}]
    return body


def is_placed(pods, name):
    pod = pods.api.get(f"{pods.path}/{name}")
    return keys.ALLOCATION in pod["metadata"].get("annotations", {})


def test_a_deep_job_hides_no_other_from_a_scorer_that_begins(
    plane, webhook, tenant, machines, tmp_path
):
    del webhook
    machines(1)
    template = {"spec": {**a_pod("any")["spec"], "restartPolicy": "Never"}}
    for depth in DEPTHS:
        job = {"metadata": {"name": f"deep-{depth}"}, "spec": {"suspend": True}}
        job["spec"]["template"] = template
        tenant.api.create(
            f"/apis/batch/v1/namespaces/{tenant.namespace}/jobs", nested(job, depth, "batch/v1")
        )

    with run_scorer(plane, tmp_path):
        tenant.create({keys.GPU_WHOLE: 1}, name="honest")
        wait_until(lambda: is_placed(tenant, "honest"), "another pod is placed", 60)


def test_a_deep_pod_hides_no_other_from_the_scorer(placing, tenant, machines):
    machines(1)
    for depth in DEPTHS:
        tenant.api.create(tenant.path, nested(a_pod(f"deep-{depth}"), depth))

    tenant.create({keys.GPU_WHOLE: 1}, name="honest")
    wait_until(lambda: is_placed(tenant, "honest"), "another pod is placed", 60)
    wait_until(lambda: placing.leads, "it answers")
