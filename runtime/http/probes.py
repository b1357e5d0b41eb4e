"""Whether the process lives, whether it is ready, and its metrics: routes for a plain listener."""

from collections.abc import Awaitable, Callable, Mapping
from inspect import isawaitable

from prometheus_client import CollectorRegistry, generate_latest

from runtime.http.types import TEXT, HttpRequest, HttpResponse, Route

Condition = Callable[[], str | Awaitable[str | None] | None]
"""What is missing, in words; None when nothing is."""


def probe_routes(registry: CollectorRegistry, conditions: Mapping[str, Condition]) -> list[Route]:
    """Return the routes `/healthz`, `/readyz` and `/metrics`.

    That anything is answered proves the event loop alive, and no more is asked of a process that
    would otherwise be restarted for what a restart does not mend. It is ready when all conditions
    hold.

    Args:
        registry: What `/metrics` shows.
        conditions: By name, such as `certificate`.
    """

    async def ready(_call: HttpRequest) -> HttpResponse:
        missing = []
        for name, condition in conditions.items():
            found = condition()
            why = await found if isawaitable(found) else found
            if why is not None:
                missing.append(f"{name}: {why}\n")
        if missing:
            return HttpResponse("".join(missing).encode(), 503, TEXT)
        return HttpResponse(b"ok\n", 200, TEXT)

    return [
        Route("GET", "/healthz", lambda _call: HttpResponse(b"ok\n", 200, TEXT)),
        Route("GET", "/readyz", ready),
        Route("GET", "/metrics", metrics_handler(registry)),
    ]


def metrics_handler(registry: CollectorRegistry) -> Callable[[HttpRequest], HttpResponse]:
    """Return what answers `/metrics`."""

    def answer(_call: HttpRequest) -> HttpResponse:
        return HttpResponse(
            generate_latest(registry), 200, "text/plain; version=0.0.4; charset=utf-8"
        )

    return answer
