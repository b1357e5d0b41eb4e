"""Publication of the leader's address for dry runs, in the Lease that it holds."""

import asyncio

import structlog

from cluster.keys import SCORER_ADDRESS
from cluster.pod import Metadata
from cluster.pointer import escape
from cluster.scorer_lease import LEASE, ScorerLease
from runtime.kube.client import Kube, KubeError
from scorer.gang.crd_patch import Steps

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
            lease = await kube.get(LEASE, ScorerLease)
            steps = [
                {"op": "test", "path": "/spec/leaseTransitions", "value": term},
                *_annotation_steps(lease.metadata, address),
            ]
            await kube.patch(LEASE, steps, ScorerLease, kind="json")
        except KubeError as error:
            _log.warning("Could not publish address", err=str(error))
            await asyncio.sleep(retry)
        else:
            return


def _annotation_steps(metadata: Metadata, address: str) -> Steps:
    """Return the steps that set the address and keep annotations that others write meanwhile."""
    path = "/metadata/annotations"
    if metadata.annotations:
        return [{"op": "add", "path": f"{path}/{escape(SCORER_ADDRESS)}", "value": address}]
    return [
        {"op": "test", "path": "/metadata/resourceVersion", "value": metadata.resource_version},
        {"op": "add", "path": path, "value": {SCORER_ADDRESS: address}},
    ]
