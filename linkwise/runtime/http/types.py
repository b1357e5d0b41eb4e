"""Requests, responses, routes, and what observers are given."""

from collections.abc import Awaitable, Callable, Mapping, Sequence

from msgspec import Struct

JSON = "application/json"
TEXT = "text/plain; charset=utf-8"


class HttpRequest(Struct, frozen=True):
    """A request with its whole body, within the limits."""

    path: str
    query: str
    """As sent, without the question mark; may be empty."""
    headers: Mapping[str, str]
    """Names are case-insensitive."""
    body: bytes
    peer: str = ""
    """The address of the client; others can have the same."""


class HttpResponse(Struct, frozen=True):
    """A response, with fields for the log line of its request."""

    body: bytes = b""
    status: int = 200
    content_type: str = JSON
    headers: Mapping[str, str] = {}
    fields: Mapping[str, object] = {}
    """For the log; never the content of an object."""


class Route(Struct, frozen=True):
    """One method of one path."""

    method: str
    path: str
    answer: Callable[[HttpRequest], HttpResponse | Awaitable[HttpResponse]]
    """A plain function if it waits for nothing; it blocks the event loop while it runs."""
    content_types: frozenset[str] = frozenset()
    """Content types of the body; if there are none, the body is not read."""


class CompletedRequest(Struct, frozen=True):
    """A request, once its answer is ready."""

    path: str
    """The path of the route; `other` if there is no route, since it is a label of metrics."""
    status: int
    seconds: float
    """From the call of the handler until the answer was ready [s]."""
    size: int
    """Size of the body [bytes]."""
    fields: Mapping[str, object]


Observers = Sequence[Callable[[CompletedRequest], None]]

CLIENT_CLOSED_REQUEST = 499
"""The status in logs and metrics when the client closed the connection before the answer."""


def error_response(
    status: int, message: str, headers: Mapping[str, str] | None = None
) -> HttpResponse:
    """Return a response of one sentence, which an API server shows to its user."""
    return HttpResponse(f"{message}\n".encode(), status, TEXT, headers or {}, {"reason": message})


def retry_later(message: str, headers: Mapping[str, str] | None = None) -> HttpResponse:
    """Return a 503 after which an API server repeats its call, within the same deadline.

    Source: kubernetes/client-go, rest/with_retry.go: a 5xx with a whole number in `Retry-After`.
    """
    return error_response(503, message, {**(headers or {}), "Retry-After": "1"})
