"""The informers of a leader beside a fake API server."""

import asyncio
from contextlib import asynccontextmanager

from linkwise.cluster import keys
from linkwise.runtime.kube.client import Kube
from scorer.cache.informers import Informers

CONFIG_MAPS = f"/api/v1/namespaces/{keys.TOPOLOGY_NAMESPACE}/configmaps"


@asynccontextmanager
async def watching(cluster, *build_table):
    """Run informers in the block, once they have listed everything."""
    async with Kube(cluster.url) as kube:
        informers = Informers(kube, *build_table)
        task = asyncio.create_task(informers.run())
        try:
            await asyncio.wait_for(informers.synced(), 30)
            yield informers
        finally:
            task.cancel()
            await asyncio.wait((task,))
            assert task.cancelled()


def node_in(informers, name="gpu-0"):
    """Return a node as the snapshot has it; None: it is left out."""
    ledger = informers.state.snapshot().ledger.nodes.get(name)
    return ledger and ledger.node
