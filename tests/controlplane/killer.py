"""A proxy of the API server that kills the client at each write, while it is armed.

The client is killed before the write is forwarded, or after it was executed and before the
response. In the thorough form each write is used twice, first before and then after its execution;
in the short form once, alternately before and after, and never at those of Events and ConfigMaps.
"""

import json
import re
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from threading import Lock

from controlplane.proxy import Proxy, Request

from linkwise.runtime.process.clock import wall

BEFORE, AFTER = "before", "after"
WRITES = frozenset({"POST", "PATCH", "PUT", "DELETE"})


class Killer(Proxy):
    """A proxy that kills its client."""

    cuts_dry_runs = True
    """Whether a request that only tries a write counts as a write."""

    def __init__(
        self, server: str, ca_file: str, kill: Callable[[], None], *, thorough: bool = True
    ) -> None:
        """Prepare the proxy; `kill` ends the process that sends requests."""
        super().__init__(server, ca_file)
        self._thorough = thorough
        self._turns = (BEFORE, AFTER) if thorough else (BEFORE, "", AFTER)
        self._seen = Counter[str]()
        self._kill = kill
        self._lock = Lock()
        self.armed = False
        self.ahead = 0.0
        """Offset of the clock in its responses [s]."""
        self.killed: list[str] = []
        """Writes that ended the process."""

    def handle(self, handler: BaseHTTPRequestHandler, request: Request) -> None:
        """Forward a request, or kill its client."""
        write = f"{request.method} {request.path.partition('?')[0]}"
        if request.method == "POST":
            write += f"/{json.loads(request.body)['metadata']['name']}"
        is_passed = "dryRun=All" in request.path and not self.cuts_dry_runs
        with self._lock:
            cut = "" if is_passed else self._cut(request.method, write)
        if cut == BEFORE:
            self._kill()
            return
        response = self.forward(handler, request)
        if cut == AFTER:
            response.read()
            self._kill()
            return
        self.answer(handler, response)

    def now(self, handler: BaseHTTPRequestHandler) -> str:
        """Return the time, which may be ahead."""
        return BaseHTTPRequestHandler.date_time_string(handler, wall() + self.ahead)

    def _cut(self, method: str, write: str) -> str:
        """Return when a request is cut; empty if it is not."""
        # A process creates what another one has created, too: that changes nothing.
        is_done = method == "POST" and self._seen[write] >= 2
        is_report = not self._thorough and re.search("/(events|configmaps)/", write)
        if not self.armed or method not in WRITES or is_done or is_report:
            return ""
        cut = self._turns[self._seen[write] % len(self._turns)]
        self._seen[write] += 1
        if cut:
            self.killed.append(write)
        return cut
