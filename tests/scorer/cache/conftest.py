import pytest_asyncio
from support.servers.leader_harness import Cluster


@pytest_asyncio.fixture
async def cluster():
    async with Cluster() as running:
        yield running
