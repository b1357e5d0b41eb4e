"""What an attacker gains who controls a component: the webhook's answers, or an account's token."""

import base64
import json
import ssl
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from certificates import a_ca, a_leaf
from controlplane.api import refusal
from controlplane.manifests import MUTATING, NAMESPACE
from controlplane.pods import Pods
from controlplane.process import wait_until

from cluster import keys

GPU = {keys.GPU_WHOLE: 1}
GATED = {"schedulingGates": [{"name": keys.GANG}]}
RECORD = '{"node":"gpu-0","gpus":[{"i":0}]}'
ACCOUNTS = ("linkwise-webhook", "linkwise-certs", "linkwise-scorer")
ADMINISTRATION = (
    ("create", "pods"),
    ("create", "pods/exec"),
    ("create", "pods/binding"),
    ("update", "pods/ephemeralcontainers"),
    ("get", "secrets"),
    ("list", "secrets"),
    ("create", "serviceaccounts/token"),
    ("impersonate", "users"),
    ("create", "clusterrolebindings"),
    ("patch", "clusterroles"),
    ("patch", "nodes"),
    ("patch", "validatingadmissionpolicies"),
    ("delete", "validatingadmissionpolicybindings"),
    ("create", "mutatingwebhookconfigurations"),
)
"""What no account of the base may do in a tenant's namespace, or to objects of the cluster."""


class Taken:
    """A webhook that answers every review with the patch of an attacker."""

    def __init__(self, folder):
        ca = a_ca()
        a_leaf(ca).write(folder)
        self.bundle = base64.b64encode(ca.cert_pem).decode()
        self.patch = []
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
        taken = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                body = taken.answer(review["request"]["uid"])
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                """Write nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)

    def answer(self, uid):
        patch = base64.b64encode(json.dumps(self.patch).encode()).decode()
        response = {"uid": uid, "allowed": True, "patchType": "JSONPatch", "patch": patch}
        head = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
        return json.dumps({**head, "response": response}).encode()

    @property
    def url(self):
        return f"https://127.0.0.1:{self.server.server_address[1]}/mutate"


@pytest.fixture(scope="module")
def taken(plane, shipped, tmp_path_factory):
    del shipped  # What is installed, and no webhook.
    taken = Taken(tmp_path_factory.mktemp("taken"))
    thread = Thread(target=taken.server.serve_forever)
    thread.start()
    config = {"url": taken.url, "caBundle": taken.bundle}
    steps = [{"op": "replace", "path": "/webhooks/0/clientConfig", "value": config}]
    plane.api.patch(MUTATING, steps, "json")
    yield taken
    taken.server.shutdown()
    thread.join()
    taken.server.server_close()


@pytest.fixture
def pods(plane, taken, namespace):
    """Pods of a namespace, reviewed by the attacker."""
    taken.patch = [{"op": "add", "path": "/metadata/labels", "value": {"taken": "yes"}}]
    pods = Pods(plane.api, namespace)

    def is_called():
        labels = pods.create(GPU, spec=GATED, dryRun="All")["metadata"].get("labels", {})
        return labels.get("taken") == "yes"

    wait_until(is_called, "the attacker's webhook is called")
    return pods


@pytest.mark.parametrize(
    "key", [keys.ALLOCATION, keys.VISIBLE_DEVICES, f"{keys.NVIDIA_CDI_CONTAINER}c0", keys.MEM_IDX]
)
def test_webhook_cannot_allocate_gpus(pods, taken, key):
    taken.patch = [{"op": "add", "path": "/metadata/annotations", "value": {key: RECORD}}]

    assert "linkwise-guard" in pods.refusal(GPU, spec=GATED)


def test_webhook_cannot_let_a_pod_bypass_the_scorer(pods, taken):
    taken.patch = [{"op": "add", "path": "/spec/nodeName", "value": "gpu-0"}]
    assert "linkwise-placed" in pods.refusal(GPU)
    taken.patch = [{"op": "remove", "path": "/spec/schedulingGates"}]
    assert "linkwise-placed" in pods.refusal(GPU, spec=GATED)


def test_webhook_changes_anything_else_of_the_pods_that_it_reviews_and_no_other_pod(pods, taken):
    taken.patch = [{"op": "replace", "path": "/spec/containers/0/image", "value": "evil"}]

    reviewed = pods.create({keys.NVIDIA_GPU: 1}, name="reviewed")
    other = pods.create({}, name="other")

    assert reviewed["spec"]["containers"][0]["image"] == "evil"
    assert other["spec"]["containers"][0]["image"] != "evil"


@pytest.mark.usefixtures("shipped")
@pytest.mark.parametrize("account", ACCOUNTS)
def test_no_account_may_administer_the_cluster(plane, namespace, account):
    user = f"--as=system:serviceaccount:{NAMESPACE}:{account}"

    allowed = [
        (verb, resource)
        for verb, resource in ADMINISTRATION
        if plane.kubectl("auth", "can-i", verb, resource, user, f"-n{namespace}").returncode == 0
    ]

    assert allowed == []


@pytest.mark.usefixtures("shipped")
def test_certs_reads_its_secrets_and_changes_our_registrations_alone(plane):
    api = plane.api_as(plane.token(NAMESPACE, "linkwise-certs"))
    other = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/other"

    assert "forbidden" in refusal(lambda: api.get(f"/api/v1/namespaces/{NAMESPACE}/secrets/x"))
    assert "forbidden" in refusal(lambda: api.patch(other, {"webhooks": []}))
    assert refusal(lambda: api.get(MUTATING)) == ""
