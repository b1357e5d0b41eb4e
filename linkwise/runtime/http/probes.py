"""Routes for liveness, readiness and metrics, for a listener without TLS."""

from collections.abc import Awaitable, Callable, Mapping
from inspect import isawaitable

from prometheus_client import CollectorRegistry, generate_latest

from linkwise.runtime.http.limits import Limits
from linkwise.runtime.http.types import TEXT, HttpRequest, HttpResponse, Route
from linkwise.runtime.process.clock import Clock, monotonic

Condition = Callable[[], str | Awaitable[str | None] | None]
"""Returns why the process is not ready, or None."""

PROBE_LIMITS = Limits(
    connections=32,
    peer_connections=24,
    peer_half_sent=8,
    requests=16,
    backlog=64,
    head_seconds=2,
    keep_alive_seconds=30,
)
"""Limits of a probe port: a kubelet opens one connection for each probe, Prometheus keeps one."""
RENDERING_SECONDS = 1.0
"""How long one rendering of the metrics is served [s]."""


def probe_routes(registry: CollectorRegistry, conditions: Mapping[str, Condition]) -> list[Route]:
    """Return the routes `/healthz`, `/readyz` and `/metrics`.

    Any answer of `/healthz` proves that the event loop runs. It checks nothing else, since a failed
    liveness probe restarts the process, which would repair nothing else. `/readyz` is 200 when all
    conditions hold.

    Args:
        registry: The metrics of `/metrics`.
        conditions: By name, such as `certificate`.
    """

    async def ready(_request: HttpRequest) -> HttpResponse:
        missing = []
        for name, condition in conditions.items():
            result = condition()
            reason = await result if isawaitable(result) else result
            if reason is not None:
                missing.append(f"{name}: {reason}\n")
        if missing:
            return HttpResponse("".join(missing).encode(), 503, TEXT)
        return HttpResponse(b"ok\n", 200, TEXT)

    return [
        Route("GET", "/healthz", lambda _request: HttpResponse(b"ok\n", 200, TEXT)),
        Route("GET", "/readyz", ready),
        Route("GET", "/metrics", metrics_handler(registry)),
    ]


def metrics_handler(
    registry: CollectorRegistry, clock: Clock = monotonic
) -> Callable[[HttpRequest], HttpResponse]:
    """Return the handler of `/metrics`, which renders them at most once a second."""
    rendered: HttpResponse | None = None
    expires = 0.0

    def answer(_request: HttpRequest) -> HttpResponse:
        nonlocal rendered, expires
        if rendered is None or clock() >= expires:
            content = generate_latest(registry)
            rendered = HttpResponse(content, 200, "text/plain; version=0.0.4; charset=utf-8")
            expires = clock() + RENDERING_SECONDS
        return rendered

    return answer
