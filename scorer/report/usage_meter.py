"""Measure free sets, the use of GPUs and the waiting of units, at an interval, for the metrics."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable

from linkwise.cluster.account.gpu_amounts import GPUClass, gpu_amounts
from linkwise.cluster.account.node_ledger import NodeLedger
from linkwise.cluster.account.slots import SlotGroup, free_slots
from linkwise.planning.state.cluster_state import ClusterState
from linkwise.runtime.process.clock import monotonic
from scorer.metrics import Metrics, Stage, WaitReason
from scorer.queue.fault_isolation import FaultIsolation

LATEST = 2
"""Longest time between two measurements that is counted [intervals]. After a longer one, another
process may have led meanwhile, and counted the same GPUs."""


async def measure_usage(
    state: ClusterState,
    waiting: Callable[[], Awaitable[Counter[WaitReason] | None]],
    metrics: Metrics,
    faults: FaultIsolation,
    *,
    interval: float,
) -> None:
    """Measure until cancelled; then free sets have no samples.

    A thread counts, since that takes 0.1 ms for each node.

    Args:
        state: The cluster.
        waiting: Returns how many units wait for each reason; None: not known yet.
        metrics: Where measurements are counted.
        faults: Isolates unforeseen exceptions.
        interval: Between two measurements [s].
    """
    measured: float | None = None
    try:
        while True:
            with faults.isolate(Stage.REPORT, "usage"):
                reasons = await waiting()
                if reasons is not None:
                    now, nodes = monotonic(), tuple(state.snapshot().nodes)
                    seconds = min(now - measured, LATEST * interval) if measured else 0.0
                    metrics.waited(reasons, seconds)
                    amounts, slots = await asyncio.to_thread(_measure, nodes)
                    metrics.used(amounts, seconds)
                    metrics.show_slots(slots)
                    measured = now
            await asyncio.sleep(interval)
    finally:
        metrics.show_slots(())
        metrics.waited(Counter(), 0)


def _measure(
    nodes: tuple[NodeLedger, ...],
) -> tuple[dict[GPUClass, float], tuple[SlotGroup, ...]]:
    return gpu_amounts(nodes), free_slots(nodes)
