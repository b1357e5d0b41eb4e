"""Requests on the webhook's own ports, as any client may send them, byte by byte."""

import json
import socket
import ssl
from contextlib import closing, suppress
from http.client import HTTPSConnection

from controlplane.api import Object
from controlplane.webhook import Webhook

JSON = "application/json"
MIB = 1 << 20
_LOOPBACK = "127.0.0.1"


def connect(
    webhook: Webhook, *, port: int = 0, source: str = _LOOPBACK, timeout: float = 60
) -> ssl.SSLSocket:
    """Return a new TLS connection.

    Args:
        webhook: The server.
        port: One of its ports; 0: admission.
        source: The client's address; all of 127.0.0.0/8 is this machine.
        timeout: Of every step [s].
    """
    address = (_LOOPBACK, port or webhook.ports[0])
    plain = socket.create_connection(address, timeout=timeout, source_address=(source, 0))
    return _trusting(webhook).wrap_socket(plain, server_hostname=_LOOPBACK)


def _trusting(webhook: Webhook) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=webhook.ca.cert_pem.decode())


def verdict(webhook: Webhook, body: bytes) -> tuple[int, bool | None]:
    """Send one review; return its status, and whether the answer lets the object pass."""
    context = _trusting(webhook)
    client = HTTPSConnection(_LOOPBACK, webhook.ports[0], timeout=60, context=context)
    with closing(client):
        client.request("POST", "/mutate?timeout=3s", body, {"Content-Type": JSON})
        answer = client.getresponse()
        text = answer.read()
    return answer.status, json.loads(text)["response"]["allowed"] if answer.status == 200 else None


def send(
    webhook: Webhook,
    body: bytes,
    kind: str = JSON,
    encoding: str = "",
    *,
    chunked: bool = False,
    path: str = "/mutate?timeout=3s",
    port: int = 0,
    token: str = "",
    source: str = _LOOPBACK,
    timeout: float = 60,
) -> int:
    """Send one request; return its status, or 0 where the connection is closed without one."""
    head = [
        f"POST {path} HTTP/1.1",
        "Host: webhook",
        f"Content-Type: {kind}",
        "Transfer-Encoding: chunked" if chunked else f"Content-Length: {len(body)}",
    ]
    if encoding:
        head.append(f"Content-Encoding: {encoding}")
    if token:
        head.append(f"Authorization: Bearer {token}")
    with connect(webhook, port=port, source=source, timeout=timeout) as connection:
        # A client that is refused early may find the connection closed before all is sent.
        with suppress(OSError):
            connection.sendall("\r\n".join([*head, "", ""]).encode())
            for start in range(0, len(body), MIB):
                part = body[start : start + MIB]
                connection.sendall(b"%x\r\n%s\r\n" % (len(part), part) if chunked else part)
            if chunked:
                connection.sendall(b"0\r\n\r\n")
        return status(connection)


def post(length: int) -> bytes:
    """Return the head of a review whose body has so many bytes."""
    head = ("POST /mutate?timeout=3s HTTP/1.1", "Host: webhook", f"Content-Type: {JSON}")
    return "\r\n".join([*head, f"Content-Length: {length}", "", ""]).encode()


def status(connection: ssl.SSLSocket) -> int:
    """Return the status that comes on a connection; 0 where none does."""
    message = b""
    with suppress(OSError):
        while b"\r\n" not in message and (part := connection.recv(4096)):
            message += part
    return int(message.split()[1]) if message.startswith(b"HTTP/1.1 ") else 0


def review(given: Object, kind: str = "Pod", **other: object) -> bytes:
    """Return an AdmissionReview of the creation of an object of the core API."""
    request = {
        "uid": "u",
        "kind": {"group": "", "version": "v1", "kind": kind},
        "operation": "CREATE",
        "namespace": "default",
        "object": given,
        **other,
    }
    return json.dumps(
        {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    ).encode()
