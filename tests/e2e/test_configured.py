"""An API server that shows a certificate to webhooks, and keeps an audit log."""

import base64
import json
import socket
import ssl

import pytest
from controlplane.manifests import install
from controlplane.process import wait_until
from controlplane.webhook import PATIENT, register, start_replica
from support.builders import a_pod
from support.certificates import a_ca, a_leaf

from linkwise.cluster import keys

CLIENTS, SERVERS = a_ca("clients"), a_ca()
CONFIGURATION = "apiserver.config.k8s.io/v1"
AUDIT = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy"}
RULES = [
    {"level": "Metadata", "resources": [{"group": "", "resources": ["pods"]}], "verbs": ["create"]},
    {"level": "None"},
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("configured")


@pytest.fixture(scope="module")
def configured(plane, folder):
    """The API server, with a client certificate for all webhooks, and its audit log."""
    pair = a_leaf(CLIENTS, usage="CLIENT_AUTH")
    user = {
        "client-certificate-data": base64.b64encode(pair.cert_pem).decode(),
        "client-key-data": base64.b64encode(pair.key_pem).decode(),
    }
    users = [{"name": "*", "user": user}]
    kubeconfig = write(folder / "kubeconfig", {"apiVersion": "v1", "kind": "Config"}, users=users)
    hooks = {"apiVersion": CONFIGURATION, "kind": "WebhookAdmissionConfiguration"}
    plugins = [
        {"name": name, "configuration": {**hooks, "kubeConfigFile": str(kubeconfig)}}
        for name in ("MutatingAdmissionWebhook", "ValidatingAdmissionWebhook")
    ]
    kind = {"apiVersion": CONFIGURATION, "kind": "AdmissionConfiguration"}
    plane.restart_api_server(
        f"--admission-control-config-file={write(folder / 'admission', kind, plugins=plugins)}",
        f"--audit-policy-file={write(folder / 'audit', AUDIT, rules=RULES)}",
        f"--audit-log-path={folder / 'log'}",
    )
    yield plane
    plane.restart_api_server()


@pytest.fixture(scope="module")
def webhook(configured, folder):
    """Answers only who shows a certificate of the CA that is named."""
    clients = folder / "clients.crt"
    clients.write_bytes(CLIENTS.cert_pem)
    a_leaf(SERVERS).write(folder)
    given = {"LINKWISE_CLIENT_CA": str(clients), "LINKWISE_DRAIN_SECONDS": "0"}
    install(configured)
    replica = start_replica(configured, folder, "webhook.log", **given)
    try:
        # It returns when the API server was answered.
        bundle = base64.b64encode(SERVERS.cert_pem).decode()
        register(configured, replica.ports[0], bundle, seconds=PATIENT)
        yield replica
    finally:
        configured.processes.stop(replica.process)


def write(path, kind, **fields):
    path.write_text(json.dumps({**kind, **fields}))
    return path


def first_line(port):
    """Return the response to a client without a certificate."""
    context = ssl.create_default_context(cadata=SERVERS.cert_pem.decode())
    with (
        socket.create_connection(("127.0.0.1", port), timeout=10) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as secure,
    ):
        head = "POST /v1/dry-run HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        try:
            secure.sendall(f"{head}Content-Length: 2\r\n\r\n{{}}".encode())
            return secure.recv(1000)
        except OSError:
            return b""


def test_only_an_api_server_that_shows_its_certificate_is_answered(webhook):
    admission, dry_run, _ = webhook.ports

    assert first_line(admission) == b""
    # People bring tokens.
    assert first_line(dry_run).startswith(b"HTTP/1.1 401 ")
    assert webhook.ready


@pytest.mark.usefixtures("webhook")
def test_the_audit_log_has_the_policy_the_rules_and_the_findings_of_a_decision(
    plane, folder, namespace
):
    pod = a_pod({keys.GPU_WHOLE: 1}, name="audited", annotations={keys.TERM: "1"})
    del pod["metadata"]["namespace"]
    pod["spec"]["containers"][0]["image"] = "registry.example/none"

    def written():
        # The last one may be half written.
        lines = (folder / "log").read_text().rpartition("\n")[0].splitlines()
        entries = [json.loads(line) for line in lines]
        return [one for one in entries if one["objectRef"].get("name") == "audited"]

    plane.api.create(f"/api/v1/namespaces/{namespace}/pods", pod)
    wait_until(lambda: bool(written()), "it is in the log")

    annotations = written()[-1]["annotations"]
    assert annotations["pods.linkwise.dev/policy"].startswith("generation=0 digest=")
    assert annotations["pods.linkwise.dev/rules"].startswith("record removed, ")
    assert annotations["pods.linkwise.dev/findings"] == "LW115"
