"""An HTTP proxy of the API server for one client, whose requests tests answer, delay or cut."""

import ssl
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Self

from urllib3 import BaseHTTPResponse, PoolManager, Timeout
from urllib3.exceptions import HTTPError


@dataclass(frozen=True, slots=True)
class Request:
    """One request of the client."""

    method: str
    path: str
    """With its query."""
    body: bytes


class Proxy:
    """An HTTP server that forwards requests; use it in `with`. Each connection has one request."""

    def __init__(self, server: str, ca_file: str) -> None:
        """Prepare the proxy.

        Args:
            server: The API server's address.
            ca_file: What verifies it.
        """
        context = ssl.create_default_context(cafile=ca_file)
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        self._pool = PoolManager(maxsize=512, ssl_context=context, timeout=Timeout(90))
        self._target = server
        self._server = _Server(("127.0.0.1", 0), self._handler())

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

    def handle(self, handler: BaseHTTPRequestHandler, request: Request) -> None:
        """Handle one request; by default it is forwarded.

        Raises:
            OSError, HTTPError: The client or the API server ended the connection.
        """
        self.answer(handler, self.forward(handler, request))

    def forward(self, handler: BaseHTTPRequestHandler, request: Request) -> BaseHTTPResponse:
        """Let the API server execute a request; return its response, which is still to be read."""
        headers = {key: text for key, text in handler.headers.items() if key != "Host"}
        return self._pool.request(
            request.method,
            self._target + request.path,
            body=request.body or None,
            headers=headers,
            preload_content=False,
            retries=False,
        )

    def answer(self, handler: BaseHTTPRequestHandler, response: BaseHTTPResponse) -> None:
        """Pass a response on, as it arrives."""
        handler.send_response(response.status)
        handler.send_header("Content-Type", response.headers.get("Content-Type", ""))
        handler.send_header("Connection", "close")
        handler.end_headers()
        while part := response.read1(1 << 16):
            handler.wfile.write(part)
            handler.wfile.flush()

    def now(self, handler: BaseHTTPRequestHandler) -> str:
        """Return the time in the head of a response."""
        return BaseHTTPRequestHandler.date_time_string(handler)

    def _pass_on(self, handler: BaseHTTPRequestHandler) -> None:
        handler.close_connection = True
        body = handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
        try:
            self.handle(handler, Request(handler.command, handler.path, body))
        except (OSError, HTTPError):
            return

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            def handle_any(self) -> None:
                proxy._pass_on(self)

            do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = handle_any  # noqa: N815

            def date_time_string(self, timestamp: float | None = None) -> str:
                return proxy.now(self) if timestamp is None else super().date_time_string(timestamp)

            def log_message(self, *_: object) -> None:
                """Log nothing."""

        return Handler


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 1024
    """A gang's patches come at once, each on a connection of its own."""
