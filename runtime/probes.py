"""Whether the process lives, whether it is ready, and its metrics: routes for a plain listener."""

from collections.abc import Awaitable, Callable, Mapping
from inspect import isawaitable

from prometheus_client import CollectorRegistry

from runtime.exchange import TEXT, Answer, Call, Route
from runtime.metrics import exposition

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

    async def ready(_call: Call) -> Answer:
        missing = []
        for name, condition in conditions.items():
            found = condition()
            why = await found if isawaitable(found) else found
            if why is not None:
                missing.append(f"{name}: {why}\n")
        if missing:
            return Answer("".join(missing).encode(), 503, TEXT)
        return Answer(b"ok\n", 200, TEXT)

    return [
        Route("GET", "/healthz", lambda _call: Answer(b"ok\n", 200, TEXT)),
        Route("GET", "/readyz", ready),
        Route("GET", "/metrics", exposition(registry)),
    ]
