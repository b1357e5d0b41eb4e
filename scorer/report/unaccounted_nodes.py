"""Report each node whose free GPUs are unknown, by an Event about the node."""

import asyncio
from collections.abc import Iterator
from hashlib import sha256

from linkwise.cluster.account.node_ledger import NodeLedger
from linkwise.planning.gang.events import machine_refused, unaccounted, unaccounted_pod
from linkwise.planning.state.cluster_state import ClusterState
from linkwise.runtime.kube.event_recorder import Event, EventRecorder, ObjectReference
from scorer.metrics import Stage
from scorer.queue.fault_isolation import FaultIsolation


async def report_unaccounted(
    state: ClusterState, recorder: EventRecorder, faults: FaultIsolation, *, interval: float
) -> None:
    """Report each node once for each reason, until cancelled.

    A pod that is the reason has an Event, too, in its own namespace: that of the node names none.

    Args:
        state: The cluster.
        recorder: Creates the Events.
        faults: Isolates unforeseen exceptions.
        interval: Between two checks, so that shorter states are rarely reported [s].
    """
    reported: dict[str, str] = {}
    while True:
        await asyncio.sleep(interval)
        nodes = {
            node.node.name: node
            for node in state.snapshot().nodes
            if node.unaccounted or node.node.machine_refused
        }
        # A node that was accounted meanwhile may be reported once more.
        reported = {name: why for name, why in reported.items() if why == _reason(nodes.get(name))}
        for name, node in nodes.items():
            if name in reported or faults.is_backing_off(Stage.REPORT, name):
                continue
            with faults.isolate(Stage.REPORT, name):
                if all(recorder.record(event) for event in _events(node)):
                    reported[name] = _reason(node)


def _reason(node: NodeLedger | None) -> str:
    return (node and (node.node.machine_refused or node.unaccounted)) or ""


def _events(node: NodeLedger) -> Iterator[Event]:
    name, why = node.node.name, _reason(node)
    change = sha256(why.encode()).hexdigest()
    refused = node.node.machine_refused
    message = machine_refused(refused) if refused else unaccounted(name)
    yield Event(ObjectReference.of_node(name), message.reason, message.text, change)
    if node.unaccounted_pod and not refused:
        uid, pod = node.unaccounted_pod
        namespace, _, pod_name = pod.partition("/")
        about = ObjectReference("v1", "Pod", pod_name, uid, namespace)
        message = unaccounted_pod(name, why)
        yield Event(about, message.reason, message.text, change)
