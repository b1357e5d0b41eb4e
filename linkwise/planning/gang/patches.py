"""Bodies of the writes that allocate GPUs to a pod: a patch that removes our gate, or a Binding.

Each writes the record and the node in one request, and applies only to the pod that was planned.
"""

from collections.abc import Iterable, Iterator, Mapping

from msgspec.structs import replace

from linkwise.cluster.account.node_ledger import NodeLedger
from linkwise.cluster.allocations.gpus import number_counted
from linkwise.cluster.allocations.record import Allocation, format_cdi_devices, format_record
from linkwise.cluster.keys import GANG, NODE_NAME_FIELD
from linkwise.cluster.nodes.isolation import isolation_of
from linkwise.cluster.nodes.node import Node
from linkwise.cluster.objects.affinity import (
    Affinity,
    NodeAffinity,
    NodeSelector,
    NodeSelectorTerm,
    Requirement,
)
from linkwise.cluster.objects.pod import Pod, PodSpec
from linkwise.cluster.pointer import escape
from linkwise.planning.gang.pod_info import PodInfo
from linkwise.planning.placement.placements import counted_set
from linkwise.planning.placement.result import Placement
from linkwise.policy.document import Containers
from linkwise.topology.machine import mask_of
from linkwise.topology.table import Table

Step = dict[str, object]
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_NODE = "/spec/affinity/nodeAffinity"


def allocation_of(
    placement: Placement, node: NodeLedger, table: Table | None, plan: str
) -> Allocation:
    """Return the record of one placement.

    Args:
        placement: The pod's node and GPUs.
        node: This node.
        table: Of the node's machine.
        plan: Id of the plan.
    """
    gpus = placement.gpus
    count = number_counted(gpus)
    mask = counted_set(node, count) if count else mask_of(gpus.indices)
    is_known = table is not None and (node.node.machine_known or not count)
    several = mask is not None and mask.bit_count() > 1
    bandwidth = table.bandwidth(mask) if table and mask and several and is_known else None
    machine_class = table.key if table and is_known else None
    return Allocation(placement.node, gpus, machine_class, bandwidth, plan)


def allocation_annotations(
    placement: Placement,
    allocation: Allocation,
    node: Node,
    containers: Containers,
    *,
    term: int,
    now_ns: int,
) -> dict[str, str]:
    """Return the annotations of a pod with GPUs: the record, and its CDI devices by policy.

    Args:
        placement: The pod and its GPUs.
        allocation: The record.
        node: The node of the GPUs.
        containers: The policy: how containers get GPUs.
        term: Of the Lease under which this was decided.
        now_ns: The time [ns since 1970].
    """
    member, shares = placement.member, placement.gpus.shares
    record = format_record(
        allocation,
        request=member.request,
        term=term,
        isolation=isolation_of(member.pod, member.request, node),
        now_ns=now_ns,
        node_card_memory=node.cards[shares[0].i].memory if shares else None,
    )
    if shares and containers.gpu_injection == "nri" and not member.request.by_claim:
        record |= format_cdi_devices(shares, member.request)
    return record


def allocation_patch(pod: Pod, node: str, record: Mapping[str, str]) -> list[Step]:
    """Return the patch that writes a pod's annotations and node, and removes our gate.

    It applies only while the pod has the uid and the gates with which it was planned. The node is
    required by `matchFields`, which the scheduler looks up instead of trying every node. It is
    added to each of the pod's terms, because terms are ORed; an empty term matches nothing and
    stays empty.

    Args:
        pod: The pod as it was planned.
        node: The name of its node.
        record: The annotations.
    """
    return ungating_patch(pod, record, _pin(pod.spec, node))


def ungating_patch(
    pod: Pod, annotations: Mapping[str, str], changes: Iterable[Step] = ()
) -> list[Step]:
    """Return the patch that writes annotations of a pod, changes it, and removes our gate.

    It applies only while the pod has the uid and the gates with which it was read.

    Args:
        pod: The pod as it was read.
        annotations: The annotations.
        changes: The other changes.
    """
    gates = [{"name": gate.name} for gate in pod.spec.scheduling_gates or ()]
    ours = gates.index({"name": GANG})
    return [
        {"op": "test", "path": "/metadata/uid", "value": pod.metadata.uid},
        {"op": "test", "path": "/spec/schedulingGates", "value": gates},
        *_annotate(pod, annotations),
        *changes,
        {"op": "remove", "path": f"/spec/schedulingGates/{ours}"},
    ]


def reallocation_patch(pod: Pod, record: Mapping[str, str]) -> list[Step]:
    """Return the patch that gives a pod other GPUs of its node.

    It applies only while the pod is as it was read, so that it has not been bound.

    Args:
        pod: The pod without a node.
        record: The annotations.
    """
    version = pod.metadata.resource_version
    return [
        {"op": "test", "path": "/metadata/resourceVersion", "value": version},
        *_annotate(pod, record),
    ]


def binding(pod: PodInfo, node: str, record: Mapping[str, str]) -> dict[str, object]:
    """Return the Binding of a pod to a node, which writes the annotations together with the node.

    Args:
        pod: The pod; another pod of its name is not bound.
        node: The name of the node.
        record: The annotations; empty if the pod already has them.

    Source: kubernetes v1.36.3, pkg/registry/core/pod/storage/storage.go, `assignPod`.
    """
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {
            "name": pod.name,
            "namespace": pod.namespace,
            "uid": pod.uid,
            "annotations": record,
        },
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }


def unpinned(pod: Pod, node: str) -> Pod:
    """Return a pod without the required node that `allocation_patch` has added."""
    if not pod.spec.required_terms:
        return pod
    affinity = pod.spec.affinity or Affinity()
    terms = [_unpinned_term(term, node) for term in pod.spec.required_terms]
    # A term without other requirements was added by us.
    left = [term for term in terms if term.match_expressions or term.match_fields]
    nodes = NodeAffinity(NodeSelector(left)) if left else None
    return replace(pod, spec=replace(pod.spec, affinity=replace(affinity, node_affinity=nodes)))


def _unpinned_term(term: NodeSelectorTerm, node: str) -> NodeSelectorTerm:
    pin = Requirement(NODE_NAME_FIELD, "In", [node])
    fields = list(term.match_fields or ())
    if pin in fields:
        # Ours is the last one: the pod may have been created with the same requirement.
        del fields[len(fields) - 1 - fields[::-1].index(pin)]
    return replace(term, match_fields=fields or None)


def _annotate(pod: Pod, record: Mapping[str, str]) -> Iterator[Step]:
    if pod.metadata.annotations is None:
        yield _add("/metadata/annotations", record)
        return
    for key, value in record.items():
        yield _add(f"/metadata/annotations/{escape(key)}", value)


def _pin(spec: PodSpec, node: str) -> Iterator[Step]:
    here: Step = {"key": NODE_NAME_FIELD, "operator": "In", "values": [node]}
    affinity = spec.affinity
    nodes = affinity.node_affinity if affinity else None
    if spec.required_terms:
        for index, term in enumerate(spec.required_terms):
            yield from _pin_term(f"{_NODE}/{_REQUIRED}/nodeSelectorTerms/{index}", term, here)
        return
    terms = {"nodeSelectorTerms": [{"matchFields": [here]}]}
    if affinity is None:
        yield _add("/spec/affinity", {"nodeAffinity": {_REQUIRED: terms}})
    elif nodes is None:
        yield _add(_NODE, {_REQUIRED: terms})
    else:
        yield _add(f"{_NODE}/{_REQUIRED}", terms)


def _pin_term(path: str, term: NodeSelectorTerm, here: Step) -> Iterator[Step]:
    if term.match_fields:
        yield _add(f"{path}/matchFields/-", here)
    elif term.match_expressions:
        yield _add(f"{path}/matchFields", [here])


def _add(path: str, value: object) -> Step:
    return {"op": "add", "path": path, "value": value}
