"""Claims of others on claims nodes: fenced off, refused, or made first under our name."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from controlplane.api import refusal
from controlplane.claims_nodes import (
    RULES,
    recorded,
    wait_until_claims_are_made,
)
from controlplane.dra import claiming, claims_of, make_claim
from controlplane.gangs import gang_labels, wait_for_event, wait_for_phase
from controlplane.pods import gates
from controlplane.process import wait_until
from controlplane.soak import often

from linkwise.cluster import keys

LINKWISE = Path(sys.executable).with_name("linkwise")
TOLERANT = [{"operator": "Exists"}]
PATIENCE = 120
RACERS = 24
"""Pods of ours, one GPU each, and as many of others."""

pytestmark = pytest.mark.versions


def fenced(pods, nodes):
    """Return whether each of the nodes is fenced."""
    found = {one["spec"]["deviceSelector"].get("pool") for one in pods.api.get(RULES)["items"]}
    return set(nodes) <= found


def wait_until_fenced(pods, nodes):
    wait_until(lambda: fenced(pods, nodes), "the nodes are fenced")


def edit(plane, pods):
    """Return the API server as a user of the namespace sees it who may edit all in it."""
    path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{pods.namespace}"
    # The role `edit` has no rights for claims unless the administrator adds them.
    rules = [
        {"apiGroups": ["resource.k8s.io"], "resources": ["*"], "verbs": ["*"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["*"]},
    ]
    plane.api.create(f"{path}/roles", {"metadata": {"name": "tenant"}, "rules": rules})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "tenant"}
    subject = {"kind": "ServiceAccount", "name": "default", "namespace": pods.namespace}
    body = {"metadata": {"name": "tenant"}, "roleRef": role, "subjects": [subject]}
    plane.api.create(f"{path}/rolebindings", body)
    api = plane.api_as(plane.token(pods.namespace, "default"))
    wait_until(lambda: not refusal(lambda: api.get(claims_of(pods.namespace))), "it may read")
    return api


def claim(name, count=1, **exactly):
    request = {"deviceClassName": keys.DRA_GPU_DRIVER, "count": count, **exactly}
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": request}]}}
    return {"metadata": {"name": name}, "spec": spec}


def test_claims_of_others_wait_at_the_fence_and_keep_what_they_had_before(
    plane, pods, claims, machines
):
    (node,) = machines(1)
    wait_until_fenced(pods, [node])
    make_claim(plane.api, pods.namespace, "notebook", 2)
    pods.create(name="notebook", spec=claiming("notebook"))

    def is_refused():
        conditions = pods.all()["notebook"]["status"].get("conditions", ())
        return any("cannot allocate all claims" in one.get("message", "") for one in conditions)

    wait_until(is_refused, "kube-scheduler finds no device for it")
    assert claims.allocated(pods.namespace) == {}
    wait_for_event(pods, "ClaimLeftToScheduler", keys.PLACED, of="Pod")
    ran = subprocess.run(
        [
            LINKWISE,
            "explain",
            "pod",
            f"{pods.namespace}/notebook",
            "--kubeconfig",
            plane.kubeconfig,
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"the taint {keys.PLACED}" in " ".join(ran.stdout.split())

    label(plane, node, None)
    wait_until(lambda: not fenced(pods, [node]), "the fence of a node that left is gone")
    wait_until(lambda: "notebook" in pods.bound(), "it is bound", PATIENCE)
    label(plane, node, "topology")
    wait_until_fenced(pods, [node])
    wait_until_claims_are_made(pods)
    held = claims.allocated(pods.namespace)["notebook"]
    assert len(held) == 2

    assert_free_beside(pods, held)


def test_a_pod_by_extended_resource_keeps_its_gpus_when_its_node_becomes_ours(plane, pods, claims):
    """kube-scheduler makes a claim for `nvidia.com/gpu`, since the class has it as its name."""
    (node,) = claims.add(1, mode="")
    pods.create({keys.NVIDIA_GPU: 2}, name="plain")
    wait_until(lambda: "plain" in pods.bound(), "it is bound", PATIENCE)
    status = pods.all()["plain"]["status"]
    assert status["extendedResourceClaimStatus"]["resourceClaimName"]

    label(plane, node, "topology")
    wait_until_fenced(pods, [node])
    wait_until_claims_are_made(pods)
    held = claims.allocated(pods.namespace)["plain"]
    assert len(held) == 2

    assert_free_beside(pods, held)


def assert_free_beside(pods, held):
    """Assert that of the eight GPUs of the node six are planned, and none of the two held ones."""
    for index in range(7):
        pods.create({keys.NVIDIA_GPU: 1}, name=f"large-{index}", labels=gang_labels("large", 7))
    wait_for_phase(pods, "large", "Waiting", "6 of 7")
    for index in range(6):
        pods.create({keys.NVIDIA_GPU: 1}, name=f"small-{index}", labels=gang_labels("small", 6))
    wait_for_phase(pods, "small", "Placed")
    taken = frozenset().union(*recorded(pods).values())
    assert len(taken) == 6
    assert not taken & held


def label(plane, node, mode):
    plane.api.patch(f"/api/v1/nodes/{node}", {"metadata": {"labels": {keys.NODE_MODE: mode}}})


@pytest.mark.usefixtures("driver")
def test_a_tenant_makes_no_claim_that_passes_the_fence(plane, pods):
    tenant, path = edit(plane, pods), claims_of(pods.namespace)
    templates = path.replace("resourceclaims", "resourceclaimtemplates")
    ours = [{"key": keys.PLACED, "operator": "Exists", "effect": "NoSchedule"}]
    busy = [{**ours[0], "key": keys.BUSY}]
    for tolerations in (TOLERANT, ours, busy, [*ours, {"key": "other", "operator": "Exists"}]):
        body = claim("passing", tolerations=tolerations)
        text = refusal(lambda body=body: tenant.create(path, body))
        assert "linkwise" in text
        template = {"metadata": {"name": "passing"}, "spec": {"spec": body["spec"]}}
        text = refusal(lambda template=template: tenant.create(templates, template))
        assert "linkwise" in text
    other = [{"key": "example.com/other", "operator": "Exists"}]
    assert tenant.create(path, claim("other", tolerations=other))


def test_gpus_of_a_claim_that_passes_the_fence_are_not_given_to_others(
    plane, pods, claims, machines
):
    """Such a claim is older than the policy that refuses it: here the one account creates it."""
    (node,) = machines(1)
    wait_until_fenced(pods, [node])
    scorer = plane.api_as(plane.token(keys.POLICY_NAMESPACE, keys.SCORER))
    scorer.create(claims_of(pods.namespace), claim("passing", 2, tolerations=TOLERANT))
    pods.create(name="passing", spec=claiming("passing"))
    wait_until(lambda: "passing" in pods.bound(), "it is bound", PATIENCE)
    held = claims.allocated(pods.namespace)["passing"]
    assert len(held) == 2

    assert_free_beside(pods, held)


def test_a_pod_that_names_the_claim_of_another_pod_is_refused(plane, pods, claims, machines):
    machines(1)
    pods.create({keys.NVIDIA_GPU: 1}, name="pod")
    wait_until(lambda: "pod" in claims.allocated(pods.namespace), "it has a GPU", PATIENCE)
    (held,) = pods.api.get(claims_of(pods.namespace))["items"]

    for name, spec in {"waits": {}, "named": {"nodeName": next(iter(claims.gpus))}}.items():
        text = pods.refusal(name=name, spec={**claiming(held["metadata"]["name"]), **spec})
        assert "claim" in text
    assert plane.api.get(f"{claims_of(pods.namespace)}/{held['metadata']['name']}")["status"][
        "reservedFor"
    ] == [
        {"resource": "pods", "name": "pod", "uid": pods.all()["pod"]["metadata"]["uid"]},
    ]


def test_a_claim_that_a_tenant_made_first_is_replaced(plane, pods, claims, machines):
    (node,) = machines(1)
    wait_until_fenced(pods, [node])
    tenant, path = edit(plane, pods), claims_of(pods.namespace)
    # One member is missing, so that nothing is committed yet.
    labels = gang_labels("pair", 2)
    first = pods.create({keys.NVIDIA_GPU: 2}, name="pair-0", labels=labels)
    (reference,) = first["spec"]["resourceClaims"]
    tenant.create(path, claim(reference["resourceClaimName"], 4))

    pods.create({keys.NVIDIA_GPU: 2}, name="pair-1", labels=labels)

    def agreed():
        records = recorded(pods)
        return len(records) == 2 and claims.allocated(pods.namespace) == records

    wait_until(agreed, "both have the GPUs of their records", PATIENCE)
    made = plane.api.get(f"{path}/{reference['resourceClaimName']}")
    assert [one["name"] for one in made["metadata"]["ownerReferences"]] == ["pair-0"]


def test_a_claim_that_a_tenant_deletes_before_its_pod_is_bound_is_made_again(
    plane, pods, claims, machines
):
    machines(1)
    tenant = edit(plane, pods)
    with plane.paused("kube-scheduler"):
        made = pods.create({keys.NVIDIA_GPU: 2}, name="pod")
        (reference,) = made["spec"]["resourceClaims"]
        wait_until(lambda: not gates(pods.all()["pod"]), "its gate is removed", PATIENCE)
        path = f"{claims_of(pods.namespace)}/{reference['resourceClaimName']}"
        first = tenant.get(path)["metadata"]["uid"]
        tenant.delete(path)

    wait_until(lambda: "pod" in pods.bound(), "it is bound", PATIENCE)
    assert claims.allocated(pods.namespace) == recorded(pods)
    assert tenant.get(path)["metadata"]["uid"] != first


@pytest.mark.parametrize("run", range(often(1, 12)))
def test_no_gpu_is_held_twice_in_a_race_with_pods_of_others(plane, pods, claims, machines, run):
    del run
    nodes = machines(3)
    wait_until_fenced(pods, nodes)

    def create(index):
        make_claim(plane.api, pods.namespace, f"other-{index}", 1)
        pods.create(name=f"other-{index}", spec=claiming(f"other-{index}"))
        pods.create({keys.NVIDIA_GPU: 1}, name=f"ours-{index}")

    with ThreadPoolExecutor(4) as creators:
        list(creators.map(create, range(RACERS)))

    def agreed():
        records = recorded(pods)
        is_held = len(records) == RACERS and claims.allocated(pods.namespace) == records
        return is_held and records.keys() <= pods.bound()

    wait_until(agreed, "all of ours, and no other, have GPUs", PATIENCE)
    held = [uuid for uuids in recorded(pods).values() for uuid in uuids]
    assert len(set(held)) == RACERS
    assert pods.bound() == {f"ours-{index}" for index in range(RACERS)}
