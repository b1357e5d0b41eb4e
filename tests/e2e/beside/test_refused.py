"""Bindings that something else in the cluster refuses."""

import pytest
from controlplane.api import refusal
from controlplane.cards import wait_for_reason, where
from controlplane.process import wait_until

from linkwise.cluster import keys

SHARED = {"name": "share", "machine": "t4x4", "mode": "share", "gpuMemory": 15}
WHOLE_CARD = {keys.GPU_MEM: 15}
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
WHY = "not before Monday"


@pytest.fixture
def refused(pods):
    """Somebody's policy that refuses to let one pod be bound; gives what takes it away."""
    name = f"unlucky-{pods.namespace}"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"]}
    spec = {
        "matchConstraints": {"resourceRules": [{**rule, "resources": ["pods/binding"]}]},
        "matchConditions": [{"name": "it", "expression": "request.name == 'unlucky'"}],
        "validations": [{"expression": "false", "message": WHY}],
    }
    policies, bindings = (
        f"{ADMISSION}/validatingadmissionpolic{end}" for end in ("ies", "ybindings")
    )
    pods.api.create(policies, {"metadata": {"name": name}, "spec": spec})
    bound = {"policyName": name, "validationActions": ["Deny"]}
    pods.api.create(bindings, {"metadata": {"name": name}, "spec": bound})
    pod = {"metadata": {"name": "unlucky"}, "target": {"kind": "Node", "name": "none"}}

    def holds():
        reply = refusal(lambda: pods.api.create(f"{pods.path}/unlucky/binding", pod, dryRun="All"))
        return WHY in reply

    def lift():
        pods.api.delete(f"{bindings}/{name}")
        pods.api.delete(f"{policies}/{name}")

    try:
        wait_until(holds, "the policy is in force")
        yield lift
    finally:
        refusal(lift)


def holders(sidecar):
    return [one["pod"] for gpu in sidecar.node("share")["gpus"] for one in gpu["holders"]]


def test_a_pod_whose_binding_is_refused_holds_no_gpu_and_is_bound_once_it_is_allowed(
    pods, nodes, sidecar, refused
):
    nodes(SHARED)
    pods.create(WHOLE_CARD, name="unlucky")
    wait_for_reason(pods, "unlucky", WHY)

    # As many as there are cards.
    for i in range(4):
        pods.create(WHOLE_CARD, name=f"pod-{i}")
    assert sorted(where(pods, f"pod-{i}") for i in range(4)) == [("share", (i,)) for i in range(4)]
    mine = [f"{pods.namespace}/pod-{i}" for i in range(4)]
    wait_until(lambda: sorted(holders(sidecar)) == mine, "the scorer says so, too")
    record = pods.all()["unlucky"]["metadata"].get("annotations", {})
    assert keys.ALLOCATION not in record

    refused()
    card = where(pods, "pod-2")
    pods.api.delete(f"{pods.path}/pod-2", gracePeriodSeconds="0")
    assert where(pods, "unlucky") == card
