"""aiohttp's server, whose own answers to malformed requests are ours: one constant sentence.

aiohttp quotes the bytes of the client in them, and names its version and Python's.
"""

import logging

from aiohttp import web
from aiohttp.abc import AbstractAccessLogger

from linkwise.runtime.http.handler import HANDLED, Handler, convert
from linkwise.runtime.http.limits import Limits
from linkwise.runtime.http.types import CompletedRequest, error_response

_MALFORMED = "this is not a request in HTTP/1.1 that can be read"


class HttpServer(web.Server):
    """Makes one protocol for each connection."""

    def __init__(self, handler: Handler, limits: Limits) -> None:
        super().__init__(
            handler,
            access_log_class=_malformed_requests(handler),
            logger=_logger(),
            keepalive_timeout=limits.keep_alive_seconds,
            lingering_time=limits.linger_seconds,
            # The limits are for the bytes that are sent.
            auto_decompress=False,
        )

    def __call__(self) -> web.RequestHandler:
        """Return the protocol of a new connection."""
        return _Protocol(self, loop=self._loop, **self._kwargs)


class _Protocol(web.RequestHandler):
    __slots__ = ()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Log the error as aiohttp does, and return an answer without its message."""
        super().handle_error(request, status, exc, message)
        text = _MALFORMED if status < 500 else "internal error: the log has it"
        return convert(error_response(status, text), last=True)


def _malformed_requests(handler: Handler) -> type[AbstractAccessLogger]:
    """Return a logger class that observes the requests which aiohttp answers itself."""

    class MalformedRequests(AbstractAccessLogger):
        def log(self, request: web.BaseRequest, response: web.StreamResponse, time: float) -> None:
            if HANDLED not in request:
                fields = {"reason": _MALFORMED}
                handler.observe(CompletedRequest("other", response.status, time, 0, fields))

    return MalformedRequests


def _logger() -> logging.Logger:
    """Return a logger for aiohttp, without records of malformed requests."""
    logger = logging.getLogger("linkwise.runtime.http")
    logger.addFilter(_is_no_parser_error)
    return logger


def _is_no_parser_error(record: logging.LogRecord) -> bool:
    error = record.exc_info and record.exc_info[1]
    return not type(error).__module__.startswith("aiohttp.")
