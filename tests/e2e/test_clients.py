"""Only API servers are answered, where an administrator says how they are known."""

import base64
import json
import socket
import ssl
from dataclasses import replace

import pytest
from certificates import a_ca, a_leaf
from controlplane.api import ApiError
from controlplane.process import wait_until
from controlplane.webhook import installed, register, start_replica

CLIENTS, SERVERS = a_ca("clients"), a_ca()
CONFIGURATION = "apiserver.config.k8s.io/v1"


@pytest.fixture
def known(plane, tmp_path):
    """The API server, with a client certificate for all webhooks."""
    pair = a_leaf(CLIENTS, usage="CLIENT_AUTH")
    user = {
        "client-certificate-data": base64.b64encode(pair.cert_pem).decode(),
        "client-key-data": base64.b64encode(pair.key_pem).decode(),
    }
    kubeconfig = tmp_path / "kubeconfig"
    users = [{"name": "*", "user": user}]
    kubeconfig.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", "users": users}))
    hooks = {"apiVersion": CONFIGURATION, "kind": "WebhookAdmissionConfiguration"}
    plugins = [
        {"name": name, "configuration": {**hooks, "kubeConfigFile": str(kubeconfig)}}
        for name in ("MutatingAdmissionWebhook", "ValidatingAdmissionWebhook")
    ]
    file = tmp_path / "admission"
    admission = {"apiVersion": CONFIGURATION, "kind": "AdmissionConfiguration", "plugins": plugins}
    file.write_text(json.dumps(admission))
    server = plane.process("kube-apiserver")
    flag = f"--admission-control-config-file={file}"
    swap(plane, server, replace(server, argv=(*server.argv, flag)))
    yield
    swap(plane, plane.process("kube-apiserver"), server)


def swap(plane, old, new):
    plane.processes.stop(old)
    plane.processes.start(new)
    new.wait_ready(lambda: is_ready(plane))


def is_ready(plane):
    try:
        return plane.api.text("/readyz") == "ok"
    except (ApiError, OSError):
        return False


@pytest.mark.usefixtures("known")
def test_an_api_server_that_shows_its_certificate_is_answered_and_nobody_else(plane, tmp_path):
    clients = tmp_path / "clients.crt"
    clients.write_bytes(CLIENTS.cert_pem)
    a_leaf(SERVERS).write(tmp_path)
    with installed(plane):
        replica = start_replica(
            plane, tmp_path, "log", LINKWISE_CLIENT_CA=str(clients), LINKWISE_DRAIN_SECONDS="0"
        )
        try:
            # In force: a pod was refused by the webhook, so it answered the API server.
            register(plane, replica.ports[0], base64.b64encode(SERVERS.cert_pem).decode())
            assert said(replica.ports[0]) == b""
            # People bring tokens.
            assert said(replica.ports[1]).startswith(b"HTTP/1.1 401 ")
            wait_until(lambda: replica.ready, "it is ready")
        finally:
            plane.processes.stop(replica.process)


def said(port):
    """Return what a client without a certificate is told at a port."""
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
