"""Publication of the leader's address for dry runs, in the Lease that it holds."""

import asyncio

import structlog

from cluster.keys import SCORER_ADDRESS
from cluster.scorer_lease import LEASE, ScorerLease
from runtime.kube.client import Kube, KubeError

_RETRY = 5.0
"""Before a failed write is tried again [s]."""

_log = structlog.get_logger()


async def publish_address(kube: Kube, address: str, term: int, retry: float = _RETRY) -> None:
    """Write the leader's address into the Lease; return once it is written.

    Args:
        kube: The API server.
        address: `host:port`; empty: nothing is written.
        term: The leader's term; a Lease of another term is not changed.
        retry: Before a failed write is tried again [s].
    """
    while address:
        try:
            annotations = (await kube.get(LEASE, ScorerLease)).metadata.annotations or {}
            steps = [
                {"op": "test", "path": "/spec/leaseTransitions", "value": term},
                {
                    "op": "add",
                    "path": "/metadata/annotations",
                    "value": {**annotations, SCORER_ADDRESS: address},
                },
            ]
            await kube.patch(LEASE, steps, ScorerLease, kind="json")
        except KubeError as error:
            _log.warning("Could not publish address", err=str(error))
            await asyncio.sleep(retry)
        else:
            return
