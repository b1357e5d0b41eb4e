"""Limits of an attacker in control of a component: the webhook's answers, or an account's token."""

import base64
import json
import ssl
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from controlplane.api import refusal
from controlplane.manifests import MUTATING, NAMESPACE, ROOT
from controlplane.pods import Pods, a_pod
from controlplane.process import wait_until
from controlplane.webhook import PATIENT
from support.certificates import a_ca, a_leaf

from linkwise.cluster import keys

GPU = {keys.GPU_WHOLE: 1}
GATED = {"schedulingGates": [{"name": keys.GANG}]}
RECORD = '{"node":"gpu-0","gpus":[{"i":0}]}'
RBAC = "/apis/rbac.authorization.k8s.io/v1"
AUTOSCALING = str(ROOT / "manifests/autoscaling/access.yaml")
ONLY = "linkwise-scorer may change of a pod only"
OTHER_GATE = {"name": "example.com/quota"}
ACCOUNTS = ("linkwise-webhook", "linkwise-certs", "linkwise-scorer")
ADMINISTRATION = (
    ("create", "", "pods", ""),
    ("delete", "", "pods", ""),
    ("create", "", "pods", "exec"),
    ("create", "", "pods", "portforward"),
    ("get", "", "pods", "log"),
    ("create", "", "pods", "binding"),
    ("update", "", "pods", "status"),
    ("patch", "", "pods", "resize"),
    ("update", "", "pods", "ephemeralcontainers"),
    ("get", "", "secrets", ""),
    ("list", "", "secrets", ""),
    ("list", "", "configmaps", ""),
    ("create", "", "serviceaccounts", "token"),
    ("impersonate", "", "users", ""),
    ("patch", "", "namespaces", ""),
    ("patch", "", "nodes", ""),
    ("get", "", "nodes", "proxy"),
    ("create", "rbac.authorization.k8s.io", "clusterrolebindings", ""),
    ("patch", "rbac.authorization.k8s.io", "clusterroles", ""),
    ("create", "certificates.k8s.io", "certificatesigningrequests", ""),
    ("patch", "admissionregistration.k8s.io", "validatingadmissionpolicies", ""),
    ("delete", "admissionregistration.k8s.io", "validatingadmissionpolicybindings", ""),
    ("create", "admissionregistration.k8s.io", "mutatingwebhookconfigurations", ""),
)
"""What no account of the base may do in a tenant's namespace, or to objects of the cluster."""


# First: later tests run with the rights of overlays, too.
@pytest.mark.usefixtures("shipped")
@pytest.mark.parametrize("account", ACCOUNTS)
def test_no_account_may_administer_the_cluster(plane, namespace, account):
    api = plane.api_as(plane.token(NAMESPACE, account))

    def may(verb, group, resource, subresource):
        asked = {"verb": verb, "group": group, "resource": resource, "namespace": namespace}
        body = {"spec": {"resourceAttributes": {**asked, "subresource": subresource}}}
        reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        return api.create(reviews, body)["status"]["allowed"]

    assert may("create", "authorization.k8s.io", "selfsubjectaccessreviews", "")
    assert [right for right in ADMINISTRATION if may(*right)] == []


@pytest.fixture(scope="module")
def scorer(plane, shipped):
    """The scorer's account with all the rights that a part of the chart gives it."""
    del shipped
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole"}
    subject = {"kind": "ServiceAccount", "name": "linkwise-scorer", "namespace": NAMESPACE}
    binding = {"metadata": {"name": "taken"}, "subjects": [subject]}
    binding["roleRef"] = {**role, "name": "system:kube-scheduler"}
    plane.api.create(f"{RBAC}/clusterrolebindings", binding)
    assert plane.kubectl("apply", "-f", AUTOSCALING).returncode == 0
    api = plane.api_as(plane.token(NAMESPACE, "linkwise-scorer"))
    pods = Pods(plane.api, "default")
    pods.create({}, name="probe", spec={"schedulingGates": [OTHER_GATE]})
    probe = f"{pods.path}/probe"
    for path in (probe, f"{probe}/status"):
        wait_until(lambda path=path: refusal(lambda: api.patch(path, {})) == "", "it has rights")
    taken = metadata(labels={"taken": "x"})
    wait_until(
        lambda: ONLY in refusal(lambda: api.patch(probe, taken, dryRun="All")), "the guard holds"
    )
    yield api
    pods.clear()
    plane.kubectl("delete", "-f", AUTOSCALING)
    plane.api.delete(f"{RBAC}/clusterrolebindings/taken")


@pytest.fixture
def victim(plane, scorer, namespace):
    """The path of a pod that waits at our gate and another."""
    del scorer
    pods = Pods(plane.api, namespace)
    spec = {"schedulingGates": [{"name": keys.GANG}, OTHER_GATE]}
    pods.create({}, name="victim", labels={"app": "web"}, annotations={"a": "b"}, spec=spec)
    return f"{pods.path}/victim"


def metadata(**fields):
    return {"metadata": fields}


def spec(**fields):
    return {"spec": fields}


def status(**fields):
    return {"status": fields}


OWNER = {"apiVersion": "v1", "kind": "Node", "name": "gone", "uid": "gone"}
TERMS = {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In"}]}]}
TERMS["nodeSelectorTerms"][0]["matchFields"][0]["values"] = ["gpu-0"]
NODE_AFFINITY = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": TERMS}}
TOLERATION = {"key": "any", "operator": "Exists"}
CONDITION = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
READY = {"type": "Ready", "status": "True"}
RUNNING = [{"name": "c0", "image": "i", "imageID": "i", "ready": True, "restartCount": 0}]


@pytest.mark.parametrize(
    ("way", "change"),
    [
        pytest.param("", spec(containers=[{"name": "c0", "image": "evil"}]), id="image"),
        pytest.param("", spec(activeDeadlineSeconds=1), id="deadline"),
        pytest.param("", spec(tolerations=[TOLERATION]), id="toleration"),
        pytest.param("", spec(nodeSelector={"any": "x"}), id="node selector"),
        pytest.param("", spec(affinity=NODE_AFFINITY), id="node of a pod that stays gated"),
        pytest.param("", spec(schedulingGates=[{"name": keys.GANG}]), id="another gate"),
        pytest.param("", spec(schedulingGates=None), id="all gates"),
        pytest.param("", metadata(labels={"app": "another"}), id="label"),
        pytest.param("", metadata(labels={"any": "x"}), id="new label"),
        pytest.param("", metadata(ownerReferences=[OWNER]), id="owner"),
        pytest.param("", metadata(finalizers=["example.com/any"]), id="finalizer"),
        pytest.param("", metadata(annotations={"any": "x"}), id="new annotation"),
        pytest.param("", metadata(annotations={"a": None}), id="removed annotation"),
        pytest.param("", metadata(annotations={"cdi.k8s.io/x": "x.com/d=0"}), id="any device"),
        pytest.param("/status", metadata(labels={"any": "x"}), id="label, by status"),
        pytest.param("/status", metadata(annotations={"any": "x"}), id="annotation, by status"),
        pytest.param("/status", metadata(annotations={keys.TERM: "1"}), id="record, by status"),
        pytest.param(
            "/status", metadata(finalizers=["example.com/any"]), id="finalizer, by status"
        ),
        pytest.param("/status", status(phase="Failed"), id="phase"),
        pytest.param("/status", status(conditions=[READY]), id="readiness"),
        pytest.param("/status", status(containerStatuses=RUNNING), id="containers"),
        pytest.param(
            "/status", status(podIP="10.9.9.9", podIPs=[{"ip": "10.9.9.9"}]), id="address"
        ),
    ],
)
def test_scorer_changes_nothing_of_a_pod_but_what_it_places(scorer, victim, way, change):
    patch = ("strategic",) if "containers" in change.get("spec", {}) else ("merge",)
    message = refusal(lambda: scorer.patch(f"{victim}{way}", change, *patch, dryRun="All"))

    assert ONLY in message


def test_scorer_writes_a_record_with_the_node_and_conditions_of_scheduling(plane, scorer, victim):
    written = {
        **dict.fromkeys(keys.RECORD, "0"),
        f"{keys.VISIBLE_DEVICES_OF}c0": "0",
        f"{keys.NVIDIA_CDI_CONTAINER}c0": "nvidia.com/gpu=0",
    }
    place = spec(schedulingGates=[OTHER_GATE], affinity=NODE_AFFINITY)
    place.update(metadata(annotations=written))
    disrupted = {"type": "DisruptionTarget", "status": "True"}
    conditions = status(conditions=[CONDITION, disrupted], nominatedNodeName="gpu-0")

    scorer.patch(f"{victim}/status", conditions, "strategic")
    scorer.patch(victim, place)

    placed = plane.api.get(victim)
    assert placed["metadata"]["annotations"] == {"a": "b", **written}
    assert placed["spec"]["schedulingGates"] == [OTHER_GATE]


@pytest.mark.parametrize("field", ["labels", "annotations"])
def test_scheduler_beside_the_scorer_binds_without_other_marks(plane, scorer, namespace, field):
    path = f"/api/v1/namespaces/{namespace}/pods"
    plane.api.create(path, a_pod("free", schedulerName=keys.SCHEDULER))
    binding = {"apiVersion": "v1", "kind": "Binding", "target": {"kind": "Node", "name": "none"}}
    name = {"name": "free"}
    marked = {**binding, "metadata": {**name, field: {"app": "web"}}}

    message = refusal(lambda: scorer.create(f"{path}/free/binding", marked))
    scorer.create(f"{path}/free/binding", {**binding, "metadata": name})

    assert ONLY in message


def test_scorer_deletes_no_pod_template_of_others(plane, scorer, namespace):
    path = f"/api/v1/namespaces/{namespace}/podtemplates"
    for name, labels in (("theirs", {}), ("ours", {keys.MANAGED_BY: "linkwise-scorer"})):
        body = {"metadata": {"name": name, "labels": labels}, "template": a_pod("any")}
        plane.api.create(path, body)

    wait_until(
        lambda: "linkwise-scorer" in refusal(lambda: scorer.delete(f"{path}/theirs", dryRun="All")),
        "the policy is in force",
    )
    assert refusal(lambda: scorer.delete(f"{path}/ours")) == ""


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
    steps = [
        {"op": "replace", "path": "/webhooks/0/clientConfig", "value": config},
        # The attacker answers from the process of the tests, which may stand still.
        {"op": "replace", "path": "/webhooks/0/timeoutSeconds", "value": PATIENT},
    ]
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
def test_certs_reads_its_secrets_and_changes_our_registrations_alone(plane):
    api = plane.api_as(plane.token(NAMESPACE, "linkwise-certs"))
    other = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/other"

    assert "forbidden" in refusal(lambda: api.get(f"/api/v1/namespaces/{NAMESPACE}/secrets/x"))
    assert "forbidden" in refusal(lambda: api.patch(other, {"webhooks": []}))
    assert refusal(lambda: api.get(MUTATING)) == ""


@pytest.mark.usefixtures("shipped")
def test_certs_obtains_no_token_of_another_account(plane):
    api = plane.api_as(plane.token(NAMESPACE, "linkwise-certs"))
    secret = {
        "type": "kubernetes.io/service-account-token",
        "metadata": {
            # It may read a Secret of this name.
            "name": "linkwise-scorer-cert",
            "annotations": {"kubernetes.io/service-account.name": "linkwise-scorer"},
        },
    }
    path = f"/api/v1/namespaces/{NAMESPACE}/secrets"

    wait_until(
        lambda: "linkwise-certs" in refusal(lambda: api.create(path, secret, dryRun="All")),
        "the policy is in force",
    )
    other = {"type": "Opaque", "metadata": {"name": "linkwise-scorer-cert"}}
    assert refusal(lambda: api.create(path, other, dryRun="All")) == ""
