"""What a route is asked, and what it answers."""

from collections.abc import Awaitable, Callable, Mapping, Sequence

from msgspec import Struct

JSON = "application/json"
TEXT = "text/plain; charset=utf-8"


class HttpRequest(Struct, frozen=True):
    """A request whose body has been read, within every limit."""

    path: str
    query: str
    """As sent, without the question mark; empty where there was none."""
    headers: Mapping[str, str]
    """Names compare without regard to case."""
    body: bytes


class HttpResponse(Struct, frozen=True):
    """What goes back, and what the request's line in the log says of it."""

    body: bytes = b""
    status: int = 200
    content_type: str = JSON
    headers: Mapping[str, str] = {}
    fields: Mapping[str, object] = {}
    """For the log; never an object's content."""


class Route(Struct, frozen=True):
    """One method of one path."""

    method: str
    path: str
    answer: Callable[[HttpRequest], HttpResponse | Awaitable[HttpResponse]]
    """A plain function where nothing is waited for; it holds the loop while it runs."""
    content_types: frozenset[str] = frozenset()
    """Content types of its body; empty where it takes none, and then the body is not read."""


class CompletedRequest(Struct, frozen=True):
    """One request, after its answer was made."""

    path: str
    """The route's; `other` where there was none, so that it can be a metric's label."""
    status: int
    seconds: float
    """From the head's arrival until the answer was ready to be written [s]."""
    size: int
    """The body's [bytes]."""
    fields: Mapping[str, object]


Observers = Sequence[Callable[[CompletedRequest], None]]

CLIENT_CLOSED_REQUEST = 499
"""The status in logs and metrics of a client that left before its answer."""


def error_response(
    status: int, message: str, headers: Mapping[str, str] | None = None
) -> HttpResponse:
    """Return an answer of one sentence, which an API server shows to its user."""
    return HttpResponse(f"{message}\n".encode(), status, TEXT, headers or {}, {"reason": message})


def retry_later(message: str) -> HttpResponse:
    """Return the answer that an API server repeats its call for, within the same deadline.

    Source: kubernetes/client-go, rest/with_retry.go: a 5xx with a whole number in `Retry-After`.
    """
    return error_response(503, message, {"Retry-After": "1"})
