"""An API server for one test."""

import pytest_asyncio
from fake_api import FakeAPI


@pytest_asyncio.fixture
async def api():
    async with FakeAPI() as running:
        yield running
