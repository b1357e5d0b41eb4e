"""Gangs that wait for capacity ask cluster-autoscaler's API, and Karpenter."""

import pytest
from controlplane.gangs import (
    delete_pods,
    is_gone,
    make_gang,
    wait_for_phase,
    wait_until_placed,
)
from controlplane.karpenter import TOLERATION, install_crds, run_karpenter
from controlplane.manifests import ROOT
from controlplane.process import wait_until

from linkwise.cluster import keys

PROVISIONING = "autoscaling: {request: provisioningRequest}"
CONDITION = "autoscaling: {request: podCondition}"
PATIENCE = 180

pytestmark = pytest.mark.usefixtures("placing", "rights")
RIGHTS = str(ROOT / "manifests/autoscaling")


@pytest.fixture(scope="module")
def rights(plane, webhook):
    del webhook  # It installs the base, and removes what was there before.
    applied = plane.kubectl("apply", "-k", RIGHTS)
    assert applied.returncode == 0, applied.stderr
    yield
    plane.kubectl("delete", "-k", RIGHTS)


def requests_of(pods):
    return f"/apis/autoscaling.x-k8s.io/v1/namespaces/{pods.namespace}/provisioningrequests"


def templates_of(pods):
    return f"/api/v1/namespaces/{pods.namespace}/podtemplates"


def reasons(pods):
    """Return the reason of the condition PodScheduled of each pod."""
    return {
        name: [
            one.get("reason")
            for one in pod["status"].get("conditions", ())
            if one["type"] == "PodScheduled"
        ]
        for name, pod in pods.all().items()
    }


@pytest.fixture
def nodes_of_karpenter(plane, autoscalers):
    with run_karpenter(plane, autoscalers, nodes=2):
        yield


def test_nothing_is_asked_where_provisioning_requests_are_not_served(
    plane, placing, pods, machines, policy, autoscalers
):
    del autoscalers
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    name = "provisioningrequests.autoscaling.x-k8s.io"
    if not is_gone(pods, f"{path}/{name}"):
        plane.api.delete(f"{path}/{name}")
        wait_until(lambda: is_gone(pods, f"{path}/{name}"), "its definition is gone", PATIENCE)
    policy(PROVISIONING)
    machines(1)
    make_gang(pods, "large", 2, 8)
    missing = "ProvisioningRequests are not served"
    wait_until(
        lambda: missing in placing.process.log.read_text(), "the log has the reason", PATIENCE
    )
    assert plane.api.get(templates_of(pods))["items"] == []


def test_a_gang_has_one_provisioning_request_until_it_is_placed(
    plane, pods, machines, policy, autoscalers
):
    install_crds(plane, autoscalers)
    policy(PROVISIONING)
    machines(1)
    affinity = {"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["far"]}]}
    required = {"nodeSelectorTerms": [affinity]}
    spec = {
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}},
    }
    make_gang(pods, "large", 2, 8, spec=spec)

    wait_until(lambda: plane.api.get(requests_of(pods))["items"], "it asks", PATIENCE)
    (request,) = plane.api.get(requests_of(pods))["items"]
    (template,) = plane.api.get(templates_of(pods))["items"]
    (pod_set,) = request["spec"]["podSets"]
    assert request["spec"]["provisioningClassName"] == keys.BEST_EFFORT_ATOMIC
    assert pod_set == {"count": 2, "podTemplateRef": {"name": template["metadata"]["name"]}}
    asked = template["template"]["spec"]
    assert asked["containers"][0]["resources"]["limits"][keys.GPU_WHOLE] == "8"
    member = pods.all()["large-0"]["spec"]
    # What admission added is asked, too: the mode of the nodes.
    assert asked["affinity"] == member["affinity"]
    assert keys.NODE_MODE in str(asked["affinity"])
    assert "schedulingGates" not in asked
    assert [one["key"] for one in asked["tolerations"]] == [
        one["key"] for one in member["tolerations"]
    ]

    delete_pods(pods, "large-0", "large-1")
    make_gang(pods, "small", 1, 8)
    wait_until_placed(pods, "small", 1)
    wait_until(lambda: not plane.api.get(requests_of(pods))["items"], "none is left", PATIENCE)
    wait_until(lambda: not plane.api.get(templates_of(pods))["items"], "none is left", PATIENCE)


def test_a_request_is_deleted_when_its_gang_is_placed(plane, pods, machines, policy, autoscalers):
    install_crds(plane, autoscalers)
    policy(PROVISIONING)
    machines(1)
    make_gang(pods, "filler", 1, 8)
    wait_until_placed(pods, "filler", 1)
    make_gang(pods, "large", 1, 8)
    wait_until(lambda: plane.api.get(requests_of(pods))["items"], "it asks", PATIENCE)

    delete_pods(pods, "filler-0")

    wait_until_placed(pods, "large", 1)
    wait_until(lambda: not plane.api.get(requests_of(pods))["items"], "none is left", PATIENCE)
    wait_until(lambda: not plane.api.get(templates_of(pods))["items"], "none is left", PATIENCE)


@pytest.mark.usefixtures("nodes_of_karpenter")
def test_karpenter_adds_no_node_for_a_gated_gang(plane, pods, policy):
    policy(None)
    spec = {"tolerations": [TOLERATION]}
    make_gang(pods, "gated", 2, 8, spec=spec)
    wait_for_phase(pods, "gated", "Waiting")
    # Karpenter works: it adds a node for a pod that it may add one for.
    selector = {"nodeSelector": {keys.NODE_MODE: "topology"}}
    pods.create({"cpu": 1}, name="plain", spec={**spec, **selector})
    wait_until(lambda: pods.all()["plain"]["spec"].get("nodeName"), "it has a node", PATIENCE)
    assert reasons(pods)["gated-0"] == ["SchedulingGated"]
    assert len(plane.api.get("/api/v1/nodes")["items"]) == 1


@pytest.mark.usefixtures("nodes_of_karpenter")
def test_karpenter_adds_the_nodes_that_a_gang_waits_for(plane, pods, policy):
    policy(CONDITION)
    assert plane.api.get("/api/v1/nodes")["items"] == []
    make_gang(pods, "large", 4, 4, spec={"tolerations": [TOLERATION]})

    members = wait_until_placed(pods, "large", 4)

    assert len({node for held in members.values() for node, _ in held}) == 2
    nodes = [one["metadata"] for one in plane.api.get("/api/v1/nodes")["items"]]
    assert len(nodes) == 2
    assert all("karpenter.sh/nodepool" in one["labels"] for one in nodes)
    wait_until(lambda: set(map(tuple, reasons(pods).values())) == {(None,)}, "bound", PATIENCE)


def test_a_mark_stays_on_a_gated_pod_until_the_policy_changes(pods, machines, policy):
    policy(CONDITION)
    machines(1)
    make_gang(pods, "large", 2, 8)
    marked = {"large-0": ["Unschedulable"], "large-1": ["Unschedulable"]}
    wait_until(lambda: reasons(pods) == marked, "they are marked", PATIENCE)
    # The scheduler sees nodes and pods change, and leaves the condition of gated pods alone.
    make_gang(pods, "small", 2, 4)
    wait_until_placed(pods, "small", 2)
    assert {name: reasons(pods)[name] for name in marked} == marked

    policy(None)

    gated = {"large-0": ["SchedulingGated"], "large-1": ["SchedulingGated"]}
    wait_until(
        lambda: {name: reasons(pods)[name] for name in gated} == gated,
        "no marks are left",
        PATIENCE,
    )
