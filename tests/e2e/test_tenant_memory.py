"""Attacks of a tenant with the role `edit` on the memory of the scorer and on the ledger."""

import json

import pytest
from controlplane.api import refusal
from controlplane.pods import Pods
from controlplane.process import wait_until
from controlplane.process_limits import memory

from linkwise.cluster import keys

MIB = 1 << 20
ROOM = 60 * MIB
"""What the scorer may grow by: a page of a list, and the allocator's."""
LARGE = 20
"""Pods of 1.2 MB of node affinity; 353 MiB of the scorer's memory, as it was."""


@pytest.fixture
def tenant(plane, namespace):
    """The API server as a ServiceAccount of the namespace sees it that may edit there."""
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"}
    subject = {"kind": "ServiceAccount", "name": "default", "namespace": namespace}
    path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings"
    body = {"metadata": {"name": "tenant"}, "roleRef": role, "subjects": [subject]}
    plane.api.create(path, body)
    api = plane.api_as(plane.token(namespace, "default"))
    found = Pods(api, namespace)
    wait_until(lambda: refusal(lambda: api.get(found.path)) == "", "the tenant may edit")
    return found


def chosen(pod):
    """Return the GPUs of a pod by its record; None before."""
    text = pod["metadata"].get("annotations", {}).get(keys.ALLOCATION)
    return text and [gpu["i"] for gpu in json.loads(text)["gpus"]]


def gated(tenant, gpus, name, resources=None, **spec):
    """Create a pod that waits for GPUs behind our gate."""
    limits = {keys.GPU_WHOLE: str(gpus)}
    resources = resources or {"limits": limits}
    containers = [{"name": "main", "image": "registry.example/none", "resources": resources}]
    spec = {"containers": containers, "schedulingGates": [{"name": keys.GANG}], **spec}
    tenant.create(name=name, spec=spec)


def placed(tenant, *names):
    """Wait until pods have GPUs, and return which, in order."""
    path = tenant.path
    wait_until(
        lambda: all(chosen(tenant.api.get(f"{path}/{name}")) for name in names),
        f"{', '.join(names)} are placed",
        60,
    )
    return [i for name in names for i in chosen(tenant.api.get(f"{path}/{name}"))]


def names():
    """Return some 1.2 MB of values."""
    return [f"{number:x>60}" for number in range(18_000)]


def required():
    term = {"matchExpressions": [{"key": "a", "operator": "NotIn", "values": names()[:2000]}]}
    terms = {"nodeSelectorTerms": [term]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def preferred():
    term = {"matchExpressions": [{"key": "a", "operator": "NotIn", "values": names()}]}
    terms = [{"weight": 1, "preference": term}]
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}


def apart():
    selector = {"matchExpressions": [{"key": "a", "operator": "In", "values": names()}]}
    term = {"topologyKey": keys.HOSTNAME, "labelSelector": selector}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


@pytest.mark.usefixtures("placing")
def test_a_pod_with_an_amount_of_seventy_digits_is_placed_and_counted(tenant, machines):
    machines(1)
    limits = {keys.GPU_WHOLE: "4", "memory": "1" * 70}
    amounts = {keys.GPU_WHOLE: "4", "memory": "1Gi"}
    gated(tenant, 4, "long", {"limits": limits, "requests": amounts})
    gpus = placed(tenant, "long")
    gated(tenant, 4, "next")

    assert sorted(gpus + placed(tenant, "next")) == list(range(8))


@pytest.mark.usefixtures("placing")
def test_a_pod_that_names_its_node_is_refused_however_long_an_amount_is(tenant, machines):
    machines(1)
    message = refusal(
        lambda: gated(
            tenant,
            8,
            "long",
            {"limits": {keys.GPU_WHOLE: "8", "memory": "1" * 70}},
            nodeName="gpu-0",
            schedulingGates=[],
        )
    )

    assert "[LW112]" in message


@pytest.mark.usefixtures("placing")
def test_a_pod_that_says_too_much_of_its_nodes_is_refused(tenant):
    message = refusal(lambda: gated(tenant, 1, "large", affinity=required()))

    assert "2000 values for its node, and at most 1000 are planned" in message
    assert "[LW117]" in message


@pytest.mark.parametrize("large", [preferred, apart])
def test_of_large_pods_that_wait_next_to_nothing_is_kept_and_others_are_placed(
    placing, tenant, machines, large
):
    machines(1)
    gated(tenant, 1, "first")
    placed(tenant, "first")
    before = memory(placing.process.pid)
    for number in range(LARGE):
        gated(tenant, 16, f"large-{number}", affinity=large())
    gated(tenant, 4, "honest")
    placed(tenant, "honest")

    wait_until(
        lambda: memory(placing.process.pid) < before + ROOM, "next to nothing is kept of them"
    )


def test_of_large_disruption_budgets_next_to_nothing_is_kept(placing, tenant):
    before = memory(placing.process.pid)
    apps = {"matchExpressions": [{"key": "app", "operator": "In", "values": names()}]}
    path = f"/apis/policy/v1/namespaces/{tenant.namespace}/poddisruptionbudgets"
    for number in range(3 * LARGE):
        body = {"metadata": {"name": f"large-{number}"}, "spec": {"selector": apps}}
        tenant.api.create(path, body)

    wait_until(
        lambda: memory(placing.process.pid) < before + ROOM, "next to nothing is kept of them"
    )
