"""Dry runs on a real API server: its own, and ours, which answers only who may ask."""

import json
import ssl
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from controlplane.api import refusal
from controlplane.pods import a_pod, gates
from controlplane.process import wait_until

from linkwise.cluster import keys

RBAC = "/apis/rbac.authorization.k8s.io/v1"
MANIFEST = {"apiVersion": "v1", "kind": "Pod", **a_pod("dry", {keys.GPU_WHOLE: 1})}


# ---- The API server's own.


def test_a_server_side_dry_run_shows_the_pod_as_it_would_be_and_makes_none(webhook, pods):
    applied = webhook.plane.kubectl(
        "apply",
        "--dry-run=server",
        "--output=json",
        f"--namespace={pods.namespace}",
        "-f-",
        stdin=json.dumps(MANIFEST),
    )

    assert (applied.returncode, applied.stderr) == (0, "")
    assert gates(json.loads(applied.stdout)) == [keys.GANG]
    assert pods.all() == {}


def test_a_server_side_dry_run_reports_the_problems(webhook, pods):
    wrong = a_pod("dry", {keys.GPU_MEM: 2, keys.GPU_CORE: 22})
    body = {"apiVersion": "v1", "kind": "Pod", **wrong}

    applied = webhook.plane.kubectl(
        "apply", "--dry-run=server", f"--namespace={pods.namespace}", "-f-", stdin=json.dumps(body)
    )

    assert applied.returncode == 1
    assert "LW101" in applied.stderr
    assert "20 or 25" in applied.stderr


def test_owners_are_created_and_changed_with_the_warnings_of_check(webhook, pods):
    """Whoever scales by the subresource, and what controllers write, is not reviewed."""
    arena = {keys.POD_GROUP_NAME: "bert", keys.POD_GROUP_MIN_AVAILABLE: "2"}
    labels = {"app": "serve", **arena}
    spec = a_pod("any", {keys.GPU_WHOLE: 1})["spec"]
    template = {"metadata": {"labels": labels}, "spec": {**spec, "restartPolicy": "Always"}}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "serve"},
        "spec": {"replicas": 2, "selector": {"matchLabels": labels}, "template": template},
    }
    job = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "nightly"},
        "spec": {
            "schedule": "@daily",
            "jobTemplate": {
                "spec": {
                    "template": {
                        "spec": {
                            **a_pod("any", {keys.GPU_MEM: 2, keys.GPU_CORE: 22})["spec"],
                            "restartPolicy": "Never",
                        }
                    }
                }
            },
        },
    }

    def said(*arguments, owner=deployment):
        words = (*arguments, f"--namespace={pods.namespace}")
        done = webhook.plane.kubectl(*words, *(("-f-",) if owner else ()), stdin=json.dumps(owner))
        assert done.returncode == 0, done.stderr
        return done.stderr

    stuck = "Warning: LW401 Deployment serve can never be rolled out"
    assert stuck in said("create", "--dry-run=server")
    assert "cannot start" in said("create", "--dry-run=server", owner=job)
    assert stuck in said("apply")
    larger = {**deployment, "spec": {**deployment["spec"], "replicas": 3}}
    assert stuck in said("apply", owner=larger)
    assert said("apply", owner=larger) == ""
    assert said("scale", "deployment/serve", "--replicas=0", owner=None) == ""
    mended = {**deployment, "spec": {**deployment["spec"], "strategy": {"type": "Recreate"}}}
    assert said("apply", owner=mended) == ""


# ---- A pod that is created from one that was admitted.


@pytest.mark.parametrize(
    ("limits", "labels"),
    [
        pytest.param({keys.GPU_MEM: 2, keys.GPU_CORE: 20}, {}, id="shares"),
        pytest.param({keys.GPU_WHOLE: 1}, {}, id="whole"),
        pytest.param({keys.GPU_MEM: 4}, {keys.GPU_COUNT: "2"}, id="several cards"),
        pytest.param(
            {keys.NVIDIA_GPU: 1},
            {keys.COMPUTE_CLASS: "gpu", keys.MODEL_SERIES: "T4"},
            id="class",
        ),
        pytest.param(
            {keys.GPU_WHOLE: 1},
            {keys.POD_GROUP_NAME: "g", keys.POD_GROUP_MIN_AVAILABLE: "2"},
            id="gang",
        ),
    ],
)
def test_a_pod_that_was_admitted_is_admitted_again_as_it_is(pods, limits, labels):
    first = pods.create(limits, {}, labels=labels)
    again = {"name": "again", "labels": first["metadata"].get("labels", {})}
    again["annotations"] = first["metadata"].get("annotations", {})

    second = pods.api.create(pods.path, {"metadata": again, "spec": first["spec"]})

    assert second["spec"] == first["spec"]
    for table in ("labels", "annotations"):
        assert second["metadata"].get(table) == first["metadata"].get(table)


# ---- Ours.


def dry_run(webhook, token, namespace):
    """Return the status and the answer for one pod; without a token, the user is unknown."""
    headers = {"Content-Type": "application/json"}
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    request = Request(  # noqa: S310
        f"{webhook.dry_run}/v1/dry-run?namespace={namespace}",
        json.dumps(MANIFEST).encode(),
        headers,
    )
    context = ssl.create_default_context(cadata=webhook.ca.cert_pem.decode())
    try:
        with urlopen(request, timeout=30, context=context) as answer:  # noqa: S310
            return answer.status, json.load(answer)
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()


@pytest.fixture
def ann(plane, namespace):
    """A ServiceAccount that may do nothing; makes tokens of it for audiences."""
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    plane.api.create(path, {"metadata": {"name": "ann"}})

    def token(*audiences):
        spec = {"audiences": list(audiences)}
        return plane.api.create(f"{path}/ann/token", {"spec": spec})["status"]["token"]

    return token


@pytest.fixture
def allow(plane, namespace):
    """Lets the account do something with pods of the namespace."""

    def allow(*verbs):
        home = f"{RBAC}/namespaces/{namespace}"
        rule = {"apiGroups": [""], "resources": ["pods"], "verbs": list(verbs)}
        name = "-".join(verbs)
        plane.api.create(f"{home}/roles", {"metadata": {"name": name}, "rules": [rule]})
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
        subject = {"kind": "ServiceAccount", "name": "ann", "namespace": namespace}
        binding = {"metadata": {"name": name}, "roleRef": role, "subjects": [subject]}
        plane.api.create(f"{home}/rolebindings", binding)

    return allow


@pytest.mark.parametrize("token", [None, "", "unknown", "a.b.c"], ids=repr)
def test_a_request_without_a_valid_token_is_refused(webhook, namespace, token):
    status, message = dry_run(webhook, token, namespace)

    assert status == 401
    assert "patched" not in message


@pytest.mark.parametrize("audiences", [(), ("another",)], ids=["the API server's", "another's"])
def test_token_for_another_audience_is_refused(webhook, namespace, ann, allow, audiences):
    allow("create")
    ours = ann(keys.DRY_RUN_AUDIENCE)
    wait_until(lambda: dry_run(webhook, ours, namespace)[0] == 200, "the role is in force")

    assert dry_run(webhook, ann(*audiences), namespace)[0] == 401


def test_only_users_who_may_create_pods_in_a_namespace_get_an_answer_about_it(
    webhook, namespace, ann, allow
):
    token = ann(keys.DRY_RUN_AUDIENCE)
    assert dry_run(webhook, token, namespace)[0] == 403

    # To read pods is not enough.
    allow("get", "list")
    may_read = webhook.plane.api_as(ann())
    wait_until(lambda: _reads(may_read, namespace), "the role is in force")
    assert dry_run(webhook, token, namespace)[0] == 403

    allow("create")
    wait_until(lambda: dry_run(webhook, token, namespace)[0] == 200, "the role is in force")
    (pod,) = dry_run(webhook, token, namespace)[1]["pods"]
    assert (pod["verdict"], gates(pod["patched"])) == ("allowed", [keys.GANG])
    status, message = dry_run(webhook, token, "default")
    assert status == 403
    assert "default" in message
    assert dry_run(webhook, token, "none-such")[0] == 403


def _reads(api, namespace):
    return refusal(lambda: api.get(f"/api/v1/namespaces/{namespace}/pods")) == ""
