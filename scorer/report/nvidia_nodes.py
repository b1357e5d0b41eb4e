"""Report in the leader's Lease whether Linkwise chooses GPUs under NVIDIA's resource name.

The admission policy `linkwise-placed-nvidia` reads it: without such a node it rejects no pod.
"""

import asyncio
from collections.abc import Callable

import structlog

from cluster.keys import NVIDIA_NODES
from runtime.kube.client import Kube, KubeError
from scorer.report.lease_address import annotate_lease

_INTERVAL = 2.0
"""Between two checks [s]."""

_log = structlog.get_logger()


async def report_nvidia_nodes(
    exists: Callable[[], bool | None], kube: Kube, term: int, interval: float = _INTERVAL
) -> None:
    """Keep the annotation of the Lease up to date, until cancelled.

    Args:
        exists: Returns whether there is such a node; None: unknown.
        kube: The API server.
        term: The leader's term; a Lease of another term is not changed.
        interval: Between two checks [s].
    """
    reported: bool | None = None
    while True:
        found = exists()
        if found is not None and found != reported:
            try:
                await annotate_lease(kube, NVIDIA_NODES, "true" if found else "", term)
                reported = found
            except KubeError as error:
                _log.warning("Could not annotate Lease", err=str(error))
        await asyncio.sleep(interval)
