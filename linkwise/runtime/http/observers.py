"""Observers of answered requests: one log line and one count for each."""

import logging
from collections.abc import Callable

import structlog
from prometheus_client import CollectorRegistry, Counter, Histogram, Summary

from linkwise.runtime.http.types import CompletedRequest
from linkwise.runtime.process.clock import now_rfc3339
from linkwise.runtime.process.logs import encode_line

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1)


def log_requests() -> Callable[[CompletedRequest], None]:
    """Return an observer that writes one log line for each request.

    The lines have the format of all log lines; structlog's processors are skipped, which take more
    time than encoding and writing. The configuration is read once, now.
    """
    logger = structlog.get_logger()
    if not logger.is_enabled_for(logging.INFO):
        return lambda _served: None
    write = structlog.get_config()["logger_factory"]().msg

    def observe(served: CompletedRequest) -> None:
        event = {
            "path": served.path,
            "status": served.status,
            "duration_ms": round(served.seconds * 1000, 3),
            "size": served.size,
            **served.fields,
            "level": "info",
            "ts": now_rfc3339(),
            "msg": "Answered request",
        }
        write(encode_line(event))

    return observe


class RequestMetrics:
    """An observer that counts and times requests, by route and status."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._total = Counter(
            "linkwise_http_requests", "Requests answered.", ("path", "code"), registry=registry
        )
        self._seconds = Histogram(
            "linkwise_http_request_duration_seconds",
            "From the call of the handler until the answer was ready.",
            ("path",),
            registry=registry,
            buckets=_SECONDS,
        )
        self._bytes = Summary(
            "linkwise_http_request_size_bytes", "Bodies of requests.", ("path",), registry=registry
        )
        # The lookup of a child by its labels costs more than counting.
        self._children: dict[tuple[str, int], tuple[Counter, Histogram, Summary]] = {}

    def __call__(self, served: CompletedRequest) -> None:
        """Count a request."""
        key = served.path, served.status
        if (children := self._children.get(key)) is None:
            total = self._total.labels(served.path, str(served.status))
            seconds, size = self._seconds.labels(served.path), self._bytes.labels(served.path)
            children = self._children[key] = total, seconds, size
        children[0].inc()
        children[1].observe(served.seconds)
        children[2].observe(served.size)
