"""Tenants that try at random to get more GPUs than admitted, on a real API server."""

from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest
from controlplane.api import refusal
from controlplane.bypass.attempts import Tenant
from controlplane.bypass.judge import Judge
from controlplane.history import History
from controlplane.pods import gates, requirement, terms
from controlplane.process import wait_until
from controlplane.soak import RUNS, often

from linkwise.cluster import keys

TENANTS = 3
ATTEMPTS = often(250, 2500)
"""Of each tenant."""
ROOM = {"cpu": 96, "memory": "768Gi"}
NODES = {
    "gpu-0": (1, 0, 0),
    "gpu-1": (1, 0, 0),
    "exact": (1, 0, 0),
    "sliced": (2, 0, 0),
    "share": (0, 15, 100),
}
"""Nodes whose GPUs Linkwise gives out, and the limits of each GPU."""
MODES = {
    **dict.fromkeys(("gpu-0", "gpu-1", "exact"), "topology"),
    "sliced": "timeslice",
    "share": "core_mem",
}
PLAIN = "plain"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
MORE = {
    "apiGroups": [""],
    "resources": ["pods/status", "pods/ephemeralcontainers", "pods/resize"],
    "verbs": ["get", "patch", "update"],
}
"""What the role `edit` does not include, and an administrator may add."""


@pytest.fixture
def all_nodes(nodes, pods, placing):
    del placing  # It says in its Lease that nodes give out nvidia.com/gpu.
    exact = {keys.RESOURCE_NAME: "nvidia.com-gpu"}
    whole = {**ROOM, "machine": "dgx1-v100", "mode": "topology"}
    shared = {**ROOM, "machine": "t4x4"}
    nodes(
        {**whole, "name": "gpu", "count": 2},
        {**whole, "name": "exact", "labels": exact},
        {**shared, "name": "sliced", "mode": "timeslice", "replicas": 2},
        {**shared, "name": "share", "mode": "core_mem", "gpuMemory": 15},
        {**shared, "name": PLAIN, "labels": {"pool": PLAIN}},
    )
    asks = {keys.NVIDIA_GPU: 1}
    bare = terms([requirement(keys.NODE_MODE, "NotIn", "share")])

    def is_known():
        refused = pods.refusal(asks, spec=bare, dryRun="All")
        made = refusal(lambda: pods.create(asks, dryRun="All")) == ""
        return (
            "linkwise-placed-nvidia" in refused
            and made
            and gates(pods.create(asks, dryRun="All")) == [keys.GANG]
        )

    wait_until(is_known, "admission knows the nodes")
    return (*NODES, PLAIN)


@pytest.fixture
def api(plane, namespace):
    """The API server as a ServiceAccount sees it that may do a little more than tenants."""
    account = {"kind": "ServiceAccount", "name": "tenant", "namespace": namespace}
    home, roles = f"/api/v1/namespaces/{namespace}", f"{RBAC}/namespaces/{namespace}"
    plane.api.create(f"{home}/serviceaccounts", {"metadata": {"name": "tenant"}})
    plane.api.create(f"{roles}/roles", {"metadata": {"name": "more"}, "rules": [MORE]})
    for kind, name in (("ClusterRole", "edit"), ("Role", "more")):
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}
        binding = {"metadata": {"name": name}, "roleRef": role, "subjects": [account]}
        plane.api.create(f"{roles}/rolebindings", binding)
    api = plane.api_as(plane.token(namespace, "tenant"))
    wait_until(lambda: refusal(lambda: api.get(f"{home}/pods")) == "", "the tenant may edit")
    return api


@pytest.fixture
def tenants(api, namespace, all_nodes, run):
    return [
        Tenant(api, namespace, all_nodes, Random(f"{run}-{index}"), f"t{index}")  # noqa: S311
        for index in range(TENANTS)
    ]


@pytest.fixture
def history_of(plane, namespace):
    """Lets all tenants work, and returns what became of their pods."""

    def work(tenant, attempts):
        for number in range(attempts):
            tenant.attempt()
            if number % 50 == 49:
                tenant.clear()

    def run(tenants, attempts):
        with History(plane.api) as history:
            with ThreadPoolExecutor(TENANTS) as clients:
                list(clients.map(work, tenants, [attempts] * TENANTS))
            plane.api.delete(f"/api/v1/namespaces/{namespace}/pods", gracePeriodSeconds="0")
            history.catch_up()
        assert history.lost == ""
        return history

    return run


@pytest.mark.parametrize("run", range(RUNS or 1))
def test_no_tenant_gets_more_gpus_than_admitted(placing, tenants, history_of):
    history = history_of(tenants, ATTEMPTS)

    assert "\n".join(Judge(NODES, MODES).problems(history)) == ""
    assert placing.metrics["linkwise_unaccounted_nodes"] == 0
    # Both outcomes were common, and pods ran on every node.
    assert sum(one.created for one in tenants) > TENANTS * ATTEMPTS / 10
    assert sum(one.refused for one in tenants) > TENANTS * ATTEMPTS / 10
    assert {write.bound for write in history.writes} >= NODES.keys()


@pytest.mark.parametrize("run", range(RUNS or 1))
def test_no_tenant_gets_more_gpus_than_requested_while_no_webhook_answers(
    plane, webhook, placing, tenants, history_of
):
    for one in tenants:
        one.gated = 0.6
    plane.processes.stop(webhook.process)
    try:
        history = history_of(tenants, ATTEMPTS // 2)
    finally:
        plane.processes.start(webhook.process)
        webhook.process.wait_ready(lambda: webhook.ready)

    assert "\n".join(Judge(NODES, MODES, reviewed=False).problems(history)) == ""
    assert placing.metrics["linkwise_unaccounted_nodes"] == 0
    assert any(write.bound in NODES and write.holds for write in history.writes)
