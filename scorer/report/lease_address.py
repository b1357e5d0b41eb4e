"""Where the leader answers, written into the Lease it holds, so that nobody has to guess."""

import asyncio

import structlog

from cluster.keys import SCORER_ADDRESS
from cluster.scorer_lease import LEASE, ScorerLease
from runtime.kube.client import Kube, KubeError

_RETRY = 5.0
"""Before a failed write is tried again [s]."""

_log = structlog.get_logger()


async def publish_address(kube: Kube, address: str, term: int, retry: float = _RETRY) -> None:
    """Write the leader's address, and return once it stands there; without one, at once.

    Args:
        kube: The API server.
        address: `host:port`.
        term: Under which it leads: of a Lease that is another's by now, nothing is changed.
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
