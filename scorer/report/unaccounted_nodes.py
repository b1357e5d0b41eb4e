"""Report each node whose free GPUs are unknown, by an Event about the node."""

import asyncio
from hashlib import sha256

import structlog

from runtime.kube.client import KubeError
from runtime.kube.event_recorder import Event, EventRecorder, ObjectReference
from scorer.cache.cluster_state import ClusterState
from scorer.metrics import Stage
from scorer.queue.fault_isolation import FaultIsolation
from scorer.report.events import unaccounted

_log = structlog.get_logger()


async def report_unaccounted(
    state: ClusterState, recorder: EventRecorder, faults: FaultIsolation, *, interval: float
) -> None:
    """Report each node once for each reason, until cancelled.

    Args:
        state: The cluster.
        recorder: Creates the Events.
        faults: Isolates unforeseen exceptions.
        interval: Between two checks, so that shorter states are rarely reported [s].
    """
    reported: dict[str, str] = {}
    while True:
        await asyncio.sleep(interval)
        nodes = state.snapshot().nodes
        reasons = {
            node.node.name: node.unaccounted for node in nodes if node.unaccounted is not None
        }
        # A node that was accounted meanwhile may be reported once more.
        reported = {name: why for name, why in reported.items() if reasons.get(name) == why}
        for name, why in reasons.items():
            if name in reported or faults.is_backing_off(Stage.REPORT, name):
                continue
            with faults.isolate(Stage.REPORT, name):
                if await _report(recorder, name, why):
                    reported[name] = why


async def _report(recorder: EventRecorder, node: str, why: str) -> bool:
    """Return whether the Event exists."""
    about = ObjectReference.of_node(node)
    message = unaccounted(why)
    change = sha256(why.encode()).hexdigest()
    try:
        await recorder.record(Event(about, message.reason, message.text, change))
    except KubeError as error:
        _log.warning("Could not create event", node=node, err=str(error))
        return False
    return True
