"""A proxy of the API server that kills the client at each write, while it is armed.

The client is killed before the write is forwarded, or after it was executed and before the
response. In the thorough form each write is used twice, first before and then after its execution;
in the short form once, alternately before and after, and never at those of Events and ConfigMaps.
"""

import json
import re
import ssl
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Self

from urllib3 import PoolManager, Timeout
from urllib3.exceptions import HTTPError

from runtime.process.clock import wall

BEFORE, AFTER = "before", "after"
WRITES = frozenset({"POST", "PATCH", "PUT", "DELETE"})


class Killer:
    """An HTTP server that passes requests on; use it in `with`."""

    cuts_dry_runs = True
    """Whether a request that only tries a write counts as a write."""

    def __init__(
        self, server: str, ca_file: str, kill: Callable[[], None], *, thorough: bool = True
    ) -> None:
        """Prepare the proxy; `kill` ends the process that sends requests."""
        self._thorough = thorough
        self._turns = (BEFORE, AFTER) if thorough else (BEFORE, "", AFTER)
        self._seen = Counter[str]()
        context = ssl.create_default_context(cafile=ca_file)
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        self._pool = PoolManager(maxsize=512, ssl_context=context, timeout=Timeout(90))
        self._target, self._kill = server, kill
        self._lock = Lock()
        self.armed = False
        self.ahead = 0.0
        """Offset of the clock in its responses [s]."""
        self.killed: list[str] = []
        """Writes that ended the process."""
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True

    @property
    def server(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def pass_on(self, handler: BaseHTTPRequestHandler) -> None:
        """Handle one request."""
        handler.close_connection = True
        body = handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
        write = f"{handler.command} {handler.path.partition('?')[0]}"
        if handler.command == "POST":
            write += f"/{json.loads(body)['metadata']['name']}"
        is_passed = "dryRun=All" in handler.path and not self.cuts_dry_runs
        with self._lock:
            cut = "" if is_passed else self._cut(handler.command, write)
        if cut == BEFORE:
            self._kill()
            return
        headers = {key: text for key, text in handler.headers.items() if key != "Host"}
        try:
            answer = self._pool.request(
                handler.command,
                self._target + handler.path,
                body=body or None,
                headers=headers,
                preload_content=False,
                retries=False,
            )
            if cut == AFTER:
                answer.read()
                self._kill()
                return
            handler.send_response(answer.status)
            handler.send_header("Content-Type", answer.headers.get("Content-Type", ""))
            handler.send_header("Connection", "close")
            handler.end_headers()
            while part := answer.read1(1 << 16):
                handler.wfile.write(part)
                handler.wfile.flush()
        except (OSError, HTTPError):
            return

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

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        killer = self

        class Handler(BaseHTTPRequestHandler):
            def handle_any(self) -> None:
                killer.pass_on(self)

            do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = handle_any  # noqa: N815

            def date_time_string(self, timestamp: float | None = None) -> str:
                return super().date_time_string((timestamp or wall()) + killer.ahead)

            def log_message(self, *_: object) -> None:
                """Log nothing."""

        return Handler
