"""What a pod asks for, by the names that its nodes have for it."""

from msgspec import Struct

from cluster.finding import Finding
from cluster.gang import Mark, gang_mark, is_member
from cluster.keys import GANG
from cluster.pod import NewPod
from cluster.request import Family, Request, read_request
from policy.snapshot import PolicySnapshot
from webhook.patch import Operation
from webhook.sharing import Landing, Renaming, landing, relevant, rename, sharing_findings

_BY_NVIDIAS_NAMES = frozenset({Family.NVIDIA, Family.REPLICA})


class Asked(Struct, frozen=True, gc=False):
    """A pod after profiles and renaming, and what it asks for."""

    pod: NewPod
    request: Request
    mark: Mark | None
    member: bool
    """It is placed with the gang of its mark; a launcher has a mark and is no member."""
    findings: tuple[Finding, ...]
    """What is wrong with it, as far as the pod and the policy's sharing tell."""
    shared: Landing = ()
    """How the GPUs it asks for are shared on the nodes where it may land."""
    renaming: tuple[Operation, ...] = ()

    @property
    def gated(self) -> bool:
        """It brings our gate, so that the planner places it, gang or not."""
        gates = self.pod.spec.scheduling_gates
        return any(gate.name == GANG for gate in gates) if gates else False


def read(pod: NewPod, policy: PolicySnapshot) -> Asked:
    """Return what a pod asks for.

    Args:
        pod: After profiles.
        policy: How NVIDIA's plugin shares GPUs, and whether names are rewritten to that.
    """
    request, findings = read_request(pod)
    shared: Landing = ()
    renaming: Renaming | None = None
    if request.family in _BY_NVIDIAS_NAMES:
        where = landing(pod, policy.policy.sharing.groups)
        renaming = rename(pod, where) if policy.policy.sharing.rename else None
        if renaming:
            pod = renaming.pod
            request, findings = read_request(pod)
        shared = relevant(where, request)
        findings = (*findings, *sharing_findings(shared, request))
    mark, sizes = gang_mark(pod)
    member = is_member(pod, request, mark)
    if member and sizes:
        # The sizes of gangs that are not ours are others' business.
        findings = (*findings, *sizes)
    if renaming is None:
        return Asked(pod, request, mark, member, findings, shared)
    findings = tuple(renaming.as_written(finding) for finding in findings)
    return Asked(pod, request, mark, member, findings, shared, renaming.operations)
