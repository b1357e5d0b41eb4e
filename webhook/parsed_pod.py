"""What a pod asks for, by the names that its nodes have for it."""

import msgspec
from msgspec import Struct

from cluster.capacity import Capacity
from cluster.finding import Finding
from cluster.gang import Mark, gang_mark, is_member
from cluster.keys import NODE_MODE, NVIDIA_GPU_SHARED
from cluster.mode import Mode
from cluster.pod import NewPod
from cluster.request import Family, Request, read_request
from cluster.selector import is_tied, names_label
from policy.snapshot import PolicySnapshot
from webhook.patch import Operation
from webhook.sharing import (
    NodeSharing,
    Renaming,
    offering,
    rename_resource,
    sharing_findings,
    sharing_on_nodes,
)

# In Python 3.11 a member of an enum takes ten times as long to look up as a name.
_NVIDIA, _REPLICA = Family.NVIDIA, Family.REPLICA
_BY_NVIDIAS_NAMES = frozenset({_NVIDIA, _REPLICA})


class ParsedPod(Struct, frozen=True, gc=False):
    """A pod after profiles and renaming, and what it asks for."""

    pod: NewPod
    request: Request
    mark: Mark | None
    member: bool
    """It is placed with the gang of its mark; a launcher has a mark and is no member."""
    findings: tuple[Finding, ...]
    """What is wrong with it, as far as the pod and the policy's sharing tell."""
    shared: NodeSharing = ()
    """How the GPUs it asks for are shared on the nodes where it may land."""
    renaming: tuple[Operation, ...] = ()


def parse_pod(pod: NewPod, policy: PolicySnapshot, capacity: Capacity) -> ParsedPod:
    """Return what a pod asks for.

    Args:
        pod: After profiles.
        policy: How NVIDIA's plugin shares GPUs, whether names are rewritten to that, and whose
            GPUs under NVIDIA's names Linkwise chooses.
        capacity: What the cluster offers.
    """
    request, findings = read_request(pod)
    shared: NodeSharing = ()
    renaming: Renaming | None = None
    if request.family in _BY_NVIDIAS_NAMES:
        where = sharing_on_nodes(pod, policy.policy.sharing.groups, capacity)
        renaming = rename_resource(pod, where) if policy.policy.sharing.rename else None
        if renaming:
            pod = renaming.pod
            request, findings = read_request(pod)
        shared = offering(where, request)
        findings = (*findings, *sharing_findings(shared, request))
        family = _chosen_by(pod, request, policy, capacity)
        request = msgspec.structs.replace(request, family=family)
    mark, sizes = gang_mark(pod)
    member = is_member(pod, request, mark)
    if member and sizes:
        # The sizes of gangs that are not ours are others' business.
        findings = (*findings, *sizes)
    if renaming is None:
        return ParsedPod(pod, request, mark, member, findings, shared)
    findings = tuple(renaming.as_written(finding) for finding in findings)
    return ParsedPod(pod, request, mark, member, findings, shared, renaming.operations)


def _chosen_by(pod: NewPod, request: Request, policy: PolicySnapshot, capacity: Capacity) -> Family:
    """Return whether Linkwise or NVIDIA's plugin chooses GPUs that have NVIDIA's names.

    Replicas are left to the plugin unless a node of mode `timeslice` offers some: a pod must not
    be tied to nodes that do not exist. A pod that names the mode of its nodes has decided itself.
    """
    if request.counted != NVIDIA_GPU_SHARED or policy.policy.placement.nvidia == "off":
        return _NVIDIA
    if names_label(pod.spec, NODE_MODE):
        return _REPLICA if is_tied(pod.spec, NODE_MODE, Mode.TIMESLICE) else _NVIDIA
    return _REPLICA if capacity.replicas else _NVIDIA
