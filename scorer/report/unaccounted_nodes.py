"""Nodes of which nobody knows what is free: people are told, by an Event at the node."""

import asyncio
from datetime import UTC, datetime
from hashlib import sha256

import structlog
from msgspec import Struct

from runtime.kube.client import ApiError, Kube, KubeError
from runtime.process.clock import Clock
from scorer.cache.cluster_state import ClusterState
from scorer.metrics import Stage
from scorer.queue.fault_isolation import FaultIsolation
from scorer.report.events import ObjectReference, event_of, unaccounted

_log = structlog.get_logger()


class _Ignored(Struct, frozen=True):
    """Of an answer, nothing."""


async def report_unaccounted(
    kube: Kube,
    state: ClusterState,
    faults: FaultIsolation,
    clock: Clock,
    instance: str,
    *,
    interval: float,
) -> None:
    """Tell of each node once for each reason that it has, until cancelled.

    Args:
        kube: The API server.
        state: The cluster.
        faults: Contains faults of ours.
        clock: The wall clock [s since 1970].
        instance: This replica's name.
        interval: Between two checks: shorter states are not reported [s].
    """
    told: dict[str, str] = {}
    while True:
        await asyncio.sleep(interval)
        nodes = state.snapshot().nodes
        found = {one.node.name: one.unaccounted for one in nodes if one.unaccounted is not None}
        # One that is accounted again may be told of once more.
        told = {name: why for name, why in told.items() if found.get(name) == why}
        for name, why in found.items():
            if name in told or faults.is_backing_off(Stage.REPORT, name):
                continue
            with faults.isolate(Stage.REPORT, name):
                if await _tell(kube, name, why, clock(), instance):
                    told[name] = why


async def _tell(kube: Kube, node: str, why: str, now: float, instance: str) -> bool:
    """Return whether it is told, by this replica or by another."""
    # The kubelet names nodes this way in its own events, and kubectl looks for both.
    about = ObjectReference("v1", "Node", node, node)
    event = event_of(
        unaccounted(why),
        about,
        change=sha256(why.encode()).hexdigest(),
        now=datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        instance=instance,
    )
    try:
        await kube.create(f"/api/v1/namespaces/{about.home}/events", event, _Ignored)
    except KubeError as error:
        if not (isinstance(error, ApiError) and error.status == 409):
            _log.warning("Could not make event", node=node, err=str(error))
            return False
    return True
