"""An API server of a few objects, and the kubeconfig of a person who may ask it."""

import http.server
import json
import ssl
import threading
from contextlib import contextmanager
from urllib.parse import parse_qs, urlsplit

from linkwise.cluster import keys
from support.builders import node_object
from support.certificates import a_ca, a_leaf

TOKEN = "header.body.signature"  # noqa: S105
NODES, PODS = "/api/v1/nodes", "/api/v1/pods"


class Served(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        url = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        self.server.requests.append((url.path, query, self.headers))
        self.reply(*self.server.answer(url.path, query))

    def do_POST(self):
        url = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        sent = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.requests.append((url.path, query, self.headers))
        answer = self.server.posts.get(url.path)
        self.reply(*(answer(query, sent) if answer else (404, {"message": "not found"})))

    def reply(self, status, body):
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


class Cluster:
    """An API server of 127.0.0.1, and the kubeconfig of a person who may ask it."""

    def __init__(self, folder):
        self.folder, self.ca = folder, a_ca()
        self.objects = {NODES: [node_object("gpu", {}, **{keys.NVIDIA_GPU: "4"})], PODS: []}
        self.faults = {}
        cert, key = a_leaf(self.ca).write(folder)
        (folder / "ca.crt").write_bytes(self.ca.cert_pem)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(cert, key)
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Served)
        self.server.socket = self.context.wrap_socket(
            self.server.socket, server_side=True, do_handshake_on_connect=False
        )
        self.server.handle_error = lambda *_: None
        self.server.answer, self.server.requests = self.answer, []
        self.posts = self.server.posts = {}
        """What answers a query and a body, by path."""
        self.url = f"https://127.0.0.1:{self.server.server_port}"

    def answer(self, path, query):
        if fault := self.faults.get(path):
            return fault(query)
        if path not in self.objects:
            return 404, {"kind": "Status", "message": "not found"}
        items, start = self.objects[path], int(query.get("continue", "0"))
        limit = int(query.get("limit", len(items) or 1))
        go_on = str(start + limit) if start + limit < len(items) else ""
        return 200, {"metadata": {"continue": go_on}, "items": items[start : start + limit]}

    @property
    def requests(self):
        return [path for path, _, _ in self.server.requests]

    def kubeconfig(self, user=None, name="config", namespace="team", **cluster):
        """Write the kubeconfig of a person; without a user it is one with the token."""
        known = {"server": self.url, "certificate-authority": "ca.crt"}
        context = {"cluster": "here", "user": "ann", "namespace": namespace}
        config = {
            "current-context": "work",
            "clusters": [{"name": "here", "cluster": {**known, **cluster}}],
            "contexts": [
                {"name": "work", "context": context},
                {"name": "play", "context": {"cluster": "here"}},
            ],
            "users": [{"name": "ann", "user": {"token": TOKEN} if user is None else user}],
        }
        (self.folder / name).write_text(json.dumps(config))
        return config

    def header(self, name):
        _, _, headers = self.server.requests[0]
        return headers[name]


@contextmanager
def served(folder, monkeypatch):
    """An API server with one GPU node; $KUBECONFIG names who asks it."""
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("KUBECONFIG", "config")
    made = Cluster(folder)
    made.kubeconfig()
    thread = threading.Thread(target=made.server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield made
    finally:
        made.server.shutdown()
        thread.join()
        made.server.server_close()


def refused(status, message=""):
    return lambda _: (status, {"kind": "Status", "message": message})
