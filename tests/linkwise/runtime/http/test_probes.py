import asyncio
from contextlib import AsyncExitStack, closing, suppress

import aiohttp
import pytest
from prometheus_client import CollectorRegistry
from support.waiting import until

from linkwise.runtime.http.connection_limiter import PEER
from linkwise.runtime.http.probes import PROBE_LIMITS, metrics_handler, probe_routes
from linkwise.runtime.http.server import serve
from linkwise.runtime.http.types import HttpRequest, HttpResponse, Route
from linkwise.runtime.process.metrics import Gauges


async def asked(path, conditions):
    routes = probe_routes(CollectorRegistry(), conditions)
    async with (
        serve(routes, host="127.0.0.1", port=0) as server,
        aiohttp.ClientSession(f"http://127.0.0.1:{server.port}") as session,
        session.get(path) as answer,
    ):
        return answer.status, await answer.text()


async def holds():
    return None


async def fails():
    return "no list yet"


@pytest.mark.parametrize(
    ("conditions", "answer"),
    [
        ({}, (200, "ok\n")),
        ({"policy": lambda: None, "watch": holds}, (200, "ok\n")),
        ({"policy": lambda: "none was read", "watch": holds}, (503, "policy: none was read\n")),
        (
            {"certificate": lambda: "no file", "watch": fails},
            (503, "certificate: no file\nwatch: no list yet\n"),
        ),
    ],
    ids=["none", "all hold", "one fails", "all fail"],
)
async def test_readiness_lists_the_conditions_that_fail(conditions, answer):
    assert await asked("/readyz", conditions) == answer


async def test_liveness_does_not_depend_on_conditions():
    assert await asked("/healthz", {"watch": fails}) == (200, "ok\n")


async def test_metrics_are_served():
    assert await asked("/metrics", {}) == (200, "")


class Rendered:
    """A registry that counts how often it is rendered."""

    def __init__(self):
        self.registry, self.count, self.now = CollectorRegistry(), 0, 0.0
        Gauges(self.registry, "renderings", "How often.", {"": self._read})

    def _read(self):
        self.count += 1
        return self.count


def test_metrics_are_rendered_at_most_once_a_second():
    rendered = Rendered()
    handler = metrics_handler(rendered.registry, lambda: rendered.now)
    before = rendered.count
    request = HttpRequest("/metrics", "", {}, b"")

    first = handler(request)
    rendered.now = 0.9
    assert handler(request) is first
    rendered.now = 1.0
    assert b"renderings" in handler(request).body
    assert rendered.count - before == 2


async def flood(port, answers):
    """Ask for metrics on one connection after the other, without end."""
    request = b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n" * 8
    while True:
        with suppress(OSError, asyncio.IncompleteReadError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            with closing(writer):
                writer.write(request)
                await reader.readuntil(b"\r\n\r\n")
                answers.append(1)
        await asyncio.sleep(0)


async def test_flood_of_requests_for_metrics_costs_few_connections_and_renderings():
    rendered, answers = Rendered(), []
    routes = probe_routes(rendered.registry, {})
    other = [Route("GET", "/work", lambda _request: HttpResponse(b"done"))]
    loop = asyncio.get_running_loop()
    async with (
        serve(routes, host="127.0.0.1", port=0, limits=PROBE_LIMITS) as probes,
        serve(other, host="127.0.0.1", port=0) as working,
        aiohttp.ClientSession() as session,
    ):
        before, started = rendered.count, loop.time()
        attackers = [asyncio.create_task(flood(probes.port, answers)) for _ in range(600)]
        await until(lambda: len(answers) > 100)
        for _ in range(20):
            async with session.get(f"http://127.0.0.1:{working.port}/work") as answer:
                assert await answer.text() == "done"
            assert len(probes.limiter.open) <= PROBE_LIMITS.connections
        async with session.get(f"http://127.0.0.1:{probes.port}/healthz") as answer:
            assert answer.status == 200
        for attacker in attackers:
            attacker.cancel()
        await asyncio.gather(*attackers, return_exceptions=True)
        renderings, seconds = rendered.count - before, loop.time() - started

    assert renderings <= seconds + 1


async def test_one_address_leaves_connections_of_a_probe_port_to_others():
    routes = probe_routes(CollectorRegistry(), {})
    own, more = PROBE_LIMITS.peer_connections, 6
    async with (
        serve(routes, host="127.0.0.1", port=0, limits=PROBE_LIMITS) as probes,
        AsyncExitStack() as crowd,
    ):
        for _ in range(own + more):
            reader, writer = await asyncio.open_connection("127.0.0.1", probes.port)
            crowd.enter_context(closing(writer))
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: here\r\n\r\n")
            await reader.readuntil(b"\r\n\r\n")
        assert probes.limiter.dropped == {PEER: more}
        assert len(probes.limiter.open) <= own < PROBE_LIMITS.connections
