"""A proxy of the API server that refuses, delays or loses evictions and patches of some pods.

An API server refuses such writes because of a budget, a policy, a quota or its own overload. The
client cannot distinguish the proxy's responses from those.
"""

import json
import re
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from http.server import BaseHTTPRequestHandler
from math import inf

from controlplane.proxy import Proxy, Request

from linkwise.runtime.process.clock import monotonic

_POD = re.compile(r"/api/v1/namespaces/([^/?]+)/pods/([^/?]+)(/eviction)?(\?.*)?")


class Write(Enum):
    """A kind of write about one pod."""

    TRY = "dry run of an eviction"
    EVICT = "eviction"
    PATCH = "patch"


LATE = 0
"""In place of a status: the API server executes the write, but too late for its client."""
LOST = 1
"""In place of a status: the API server executes the write, and its response is lost."""
_DELAY = 4.0
"""Longer than the scorer waits for a write [s]."""


@dataclass(frozen=True, slots=True)
class Fault:
    """The same response to each write of some kinds about one pod, for some time."""

    pod: tuple[str, str]
    """Its namespace and name; also of a pod that is created later under this name."""
    writes: frozenset[Write]
    status: int
    """Of the response; or `LATE`, `LOST`."""
    until: float
    """[s, monotonic]"""


class Refusals(Proxy):
    """A proxy with faults."""

    def __init__(self, server: str, ca_file: str) -> None:
        """Start without faults."""
        super().__init__(server, ca_file)
        self._faults: list[Fault] = []
        self.hits = Counter[tuple[Write, int]]()
        """How often each kind of write met each status."""

    def add(self, faults: Iterable[Fault]) -> None:
        """Let faults begin."""
        self._faults += faults

    @property
    def are_over(self) -> bool:
        """Whether all faults that end have ended."""
        return not any(monotonic() < fault.until < inf for fault in self._faults)

    def handle(self, handler: BaseHTTPRequestHandler, request: Request) -> None:
        """Forward a request, unless a fault is about it."""
        fault = self._fault(request)
        if fault is None:
            self.answer(handler, self.forward(handler, request))
        elif fault.status in (LATE, LOST):
            if fault.status == LATE:
                time.sleep(_DELAY)
            self.forward(handler, request).read()
        else:
            _refuse(handler, fault.status)

    def _fault(self, request: Request) -> Fault | None:
        write = _write_of(request)
        if write is None:
            return None
        kind, pod = write
        for fault in self._faults:
            if fault.pod == pod and kind in fault.writes and monotonic() < fault.until:
                self.hits[kind, fault.status] += 1
                return fault
        return None


def _write_of(request: Request) -> tuple[Write, tuple[str, str]] | None:
    """Return the kind of a write and its pod; None: it is about something else."""
    found = _POD.fullmatch(request.path)
    if found is None:
        return None
    pod, is_eviction = (found[1], found[2]), found[3] is not None
    if request.method == "PATCH" and not is_eviction:
        return Write.PATCH, pod
    if request.method != "POST" or not is_eviction:
        return None
    options = json.loads(request.body).get("deleteOptions", {})
    is_tried = bool(options.get("dryRun")) or "dryRun=All" in request.path
    return (Write.TRY if is_tried else Write.EVICT), pod


def _refuse(handler: BaseHTTPRequestHandler, status: int) -> None:
    """Answer as an API server does."""
    body = json.dumps(
        {
            "kind": "Status",
            "apiVersion": "v1",
            "status": "Failure",
            "message": f"refused by the test with {status}",
            "reason": "Refused",
            "code": status,
        }
    ).encode()
    handler.send_response(status)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Content-Length", str(len(body)))
    handler.send_header("Connection", "close")
    handler.end_headers()
    handler.wfile.write(body)
