"""The answer of kube-scheduler about a pod that is tied to one node: whose fault it is. Pure.

    0/3 nodes are available: 1 Insufficient rdma/hca, 2 node(s) didn't match Pod's node affinity/
    selector. preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling.

Counted reasons are those of nodes: the pod's own one, and all others, which its affinity excludes.
A text without counts is about the pod, whatever the node: a plugin refused it before any node was
looked at (`PreFilter`).

Source: kubernetes v1.36 and v1.37, `pkg/scheduler/framework` (`FitError`) and its plugins.
"""

import re
from dataclasses import dataclass
from enum import Enum

MESSAGE_MAX = 600
"""The most that is kept of a message [characters]; with one node it is shorter."""
_WORDS_MAX = 300
"""The most that is repeated of it [characters]."""


class Fault(Enum):
    """Whose fault it is that a pod is not bound."""

    NODE = "node"
    """The node's: another one may take the pod."""
    UNIT = "unit"
    """Not the node's: no node would take the pod."""
    UNKNOWN = "unknown"
    """A program of others says so about the node, or about every node."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Why kube-scheduler does not bind a pod."""

    fault: Fault
    words: str
    """In kube-scheduler's words; printable and short."""


_HEAD = re.compile(r"0/(\d{1,9}) nodes are available: ?")
_REASON = re.compile(r"(?:^|, )(\d{1,9}) ")
_AFTER = re.compile(r"\. |\.?(?: still not schedulable,)? preemption: ")
"""What plugins say that look for another way (`PostFilter`)."""

_OTHER_NODES = (
    "node(s) didn't match Pod's node affinity/selector",
    "node(s) didn't satisfy plugin(s) [NodeAffinity]",
)
"""Reasons of the nodes to which the pod is not tied."""

OF_NODES = (
    # NodeResourcesFit
    "Insufficient ",
    "Too many pods",
    "cannot fit resource",
    # NodeUnschedulable, TaintToleration, NodeName, NodePorts, NodeDeclaredFeatures
    "node(s) were unschedulable",
    "node(s) had unknown conditions",
    "node(s) had untolerated taint",
    "node(s) had taints that the pod didn't tolerate",
    "node(s) didn't match the requested node name",
    "node(s) didn't have free ports for the requested pod ports",
    "node(s) didn't match Pod's required features",
    # NodeAffinity: the node is gone, or its labels have changed
    *_OTHER_NODES,
    "node(s) didn't match scheduler-enforced node affinity",
    "node(s) didn't satisfy plugin",
    # InterPodAffinity, PodTopologySpread
    "node(s) didn't match pod affinity rules",
    "node(s) didn't match pod anti-affinity rules",
    "node(s) didn't satisfy existing pods anti-affinity rules",
    "node(s) didn't match pod topology spread constraints",
    # VolumeBinding, VolumeZone, VolumeRestrictions, NodeVolumeLimits
    "node(s) didn't find available persistent volumes to bind",
    "node(s) didn't match PersistentVolume's node affinity",
    "node(s) did not have enough free storage",
    "node(s) had no available volume zone",
    "node(s) had volume node affinity conflict",
    "node(s) had no available disk",
    "node(s) exceed max volume count",
    # DynamicResources
    "cannot allocate all claims",
    "cannot schedule extended resource claim",
    "resourceclaim not available on the node",
    # NodeResourceTopologyMatch of scheduler-plugins
    "cannot align ",
    "invalid node topology data",
)
"""What the reasons of nodes begin with."""
IN_NODES = (
    "CSI driver is not installed on the node",
    "feature on the node",
)
"""What other reasons of nodes end with."""
OF_UNITS = (
    # VolumeRestrictions, VolumeBinding: another pod has the claim, or its volume is gone
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod",
    "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)",
    # DynamicResources: what the pod itself states
    "pod level ",
    "node allocatable resource claim ",
)
"""What the reasons of nodes begin with that each node has."""
_MISSING = re.compile(r'persistentvolumeclaim "|storageclass\S* "|resourceclaim "', re.IGNORECASE)
"""In a reason of NodeVolumeLimits or VolumeZone: an object that the pod names is missing."""


def read_answer(message: str) -> Answer | None:
    """Return the answer in the message of a pod's condition; None: it is not kube-scheduler's.

    >>> read_answer("0/2 nodes are available: 1 Too many pods, 1 node(s) didn't satisfy plugin(s) "
    ...     "[NodeAffinity]. preemption: 0/2 nodes are available: 2 Preemption is not helpful.")
    Answer(fault=<Fault.NODE: 'node'>, words='Too many pods')

    Args:
        message: Of the condition `PodScheduled`; only its beginning counts.
    """
    head = _HEAD.match(message)
    if head is None:
        return None
    text = message[head.end() : MESSAGE_MAX]
    if end := _AFTER.search(text):
        text = text[: end.start()]
    nodes, text = int(head.group(1)), text.strip().removesuffix(".")
    counted = _counted(text)
    if not counted:
        # Each plugin names the only node that it leaves, and these differ.
        is_of_node = text.startswith("node(s) didn't satisfy plugin")
        return _answer(Fault.NODE if is_of_node else Fault.UNIT, [text]) if text else None
    own = {reason: count for reason, count in counted.items() if reason not in _OTHER_NODES}
    if not own:
        return _answer(Fault.NODE, counted)
    faults = {_fault(reason, everywhere=1 < nodes == count) for reason, count in own.items()}
    worst = next(fault for fault in (Fault.UNIT, Fault.NODE, Fault.UNKNOWN) if fault in faults)
    return _answer(worst, own)


def _counted(text: str) -> dict[str, int]:
    """Return the reasons of nodes, each with the number of nodes; none: it is no such list."""
    starts = list(_REASON.finditer(text))
    if not starts or starts[0].start() > 0:
        return {}
    ends = [*(start.start() for start in starts[1:]), len(text)]
    return {
        text[start.end() : end]: int(start.group(1))
        for start, end in zip(starts, ends, strict=True)
    }


def _fault(reason: str, *, everywhere: bool) -> Fault:
    if reason.startswith(OF_UNITS) or _MISSING.search(reason):
        return Fault.UNIT
    if reason.startswith(OF_NODES) or reason.endswith(IN_NODES):
        return Fault.NODE
    return Fault.UNIT if everywhere else Fault.UNKNOWN


def _answer(fault: Fault, reasons: dict[str, int] | list[str]) -> Answer:
    text = "; ".join(reasons)[:_WORDS_MAX]
    return Answer(fault, "".join(char if char.isprintable() else "?" for char in text))
