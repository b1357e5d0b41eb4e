"""An API server for one test, and the loops that servers run on."""

import asyncio

import pytest_asyncio
import uvloop
from support.servers.fake_api import FakeAPI

_SOCKETS = {f"test_{name}.py" for name in ("server", "connection", "handler", "body", "tls")}


def pytest_asyncio_loop_factories(item):
    loops = {"uvloop": uvloop.new_event_loop}
    if item.path.name in _SOCKETS:
        loops["asyncio"] = asyncio.new_event_loop
    return loops


@pytest_asyncio.fixture
async def api():
    async with FakeAPI() as running:
        yield running
