"""Another mutating webhook beside ours, which changes pods by a function of the test."""

import base64
import json
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

from controlplane.api import Api, Object, refusal
from controlplane.pods import a_pod
from controlplane.process import wait_until
from support.certificates import a_ca, a_leaf

_PATH = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"

Steps = list[dict[str, Any]]
"""A JSON patch."""


@dataclass(slots=True)
class Neighbour:
    """The webhook, and the pods that it has reviewed."""

    change: Callable[[Object], Steps]
    seen: list[Object] = field(default_factory=list)

    def review(self, body: bytes) -> bytes:
        """Answer the API server."""
        request = json.loads(body)["request"]
        self.seen.append(request["object"])
        steps = json.dumps(self.change(request["object"])).encode()
        response = {
            "uid": request["uid"],
            "allowed": True,
            "patchType": "JSONPatch",
            "patch": base64.b64encode(steps).decode(),
        }
        kind = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
        return json.dumps({**kind, "response": response}).encode()


@contextmanager
def run_neighbour(
    api: Api, folder: Path, name: str, change: Callable[[Object], Steps]
) -> Iterator[Neighbour]:
    """Register the webhook for new pods. API servers call webhooks in the order of names."""
    neighbour = Neighbour(change)
    ca = a_ca()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*a_leaf(ca).write(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), _handler(neighbour)) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        url = f"https://127.0.0.1:{server.server_port}/"
        api.create(_PATH, _registration(name, url, ca.cert_pem))
        try:
            probe = a_pod("probe")
            pods = "/api/v1/namespaces/default/pods"
            wait_until(
                lambda: (
                    refusal(lambda: api.create(pods, probe, dryRun="All")) == ""
                    and bool(neighbour.seen)
                ),
                "the neighbour is called",
            )
            neighbour.seen.clear()
            yield neighbour
        finally:
            api.delete(f"{_PATH}/{name}")
            server.shutdown()


def _registration(name: str, url: str, ca: bytes) -> Object:
    hook = {
        "name": "neighbour.example.com",
        "clientConfig": {"url": url, "caBundle": base64.b64encode(ca).decode()},
        "rules": [
            {
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "resources": ["pods"],
                "operations": ["CREATE"],
            }
        ],
        "failurePolicy": "Fail",
        "reinvocationPolicy": "IfNeeded",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    return {"metadata": {"name": name}, "webhooks": [hook]}


def _handler(neighbour: Neighbour) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            answer = neighbour.review(body)
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            """Say nothing on the terminal."""

    return Handler
