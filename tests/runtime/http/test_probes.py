import aiohttp
import pytest
from prometheus_client import CollectorRegistry

from runtime.http.probes import probe_routes
from runtime.http.server import serve


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
