"""Requests to the etcd of a control plane, by its JSON interface."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.request import Request, urlopen

from controlplane.plane import ControlPlane


def ask_etcd(plane: ControlPlane, path: str, body: object) -> Any:
    """Return the answer of etcd to a request; the path is that below `/v3`."""
    url = f"{plane.process('etcd').urls[0]}/v3/{path}"
    request = Request(url, json.dumps(body).encode())  # noqa: S310
    with urlopen(request, timeout=30) as answer:  # noqa: S310
        return json.load(answer)


@contextmanager
def full_etcd(plane: ControlPlane) -> Iterator[None]:
    """Let etcd refuse all writes while the block runs, as when its quota is used up."""
    alarm = {"alarm": "NOSPACE"}
    ask_etcd(plane, "maintenance/alarm", {"action": "ACTIVATE", **alarm})
    try:
        yield
    finally:
        raised = ask_etcd(plane, "maintenance/alarm", {"action": "GET"})["alarms"]
        for each in raised:
            ask_etcd(plane, "maintenance/alarm", {"action": "DEACTIVATE", **each})
