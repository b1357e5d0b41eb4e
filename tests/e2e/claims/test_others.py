"""Claims of others on claims nodes: fenced off, refused, or made first under our name."""

import pytest
from controlplane.api import refusal
from controlplane.claims_nodes import RULES, recorded
from controlplane.dra import claiming, claims_of
from controlplane.gangs import gang_labels
from controlplane.process import wait_until

from cluster import keys

TOLERANT = [{"operator": "Exists"}]
PATIENCE = 120

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


@pytest.mark.usefixtures("driver")
def test_a_tenant_makes_no_claim_that_passes_the_fence(plane, pods):
    tenant, path = edit(plane, pods), claims_of(pods.namespace)
    templates = path.replace("resourceclaims", "resourceclaimtemplates")
    ours = [{"key": keys.PLACED, "operator": "Exists", "effect": "NoSchedule"}]
    for tolerations in (TOLERANT, ours, [*ours, {"key": "other", "operator": "Exists"}]):
        body = claim("passing", tolerations=tolerations)
        text = refusal(lambda body=body: tenant.create(path, body))
        assert "linkwise" in text
        template = {"metadata": {"name": "passing"}, "spec": {"spec": body["spec"]}}
        text = refusal(lambda template=template: tenant.create(templates, template))
        assert "linkwise" in text
    other = [{"key": "example.com/other", "operator": "Exists"}]
    assert tenant.create(path, claim("other", tolerations=other))


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
