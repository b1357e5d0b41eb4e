"""Reasons why a unit is not planned, whatever is free."""

from collections.abc import Iterable, Sequence

from linkwise.cluster.finding import quoted
from linkwise.cluster.keys import GANG, GANG_KIND
from linkwise.cluster.objects.metadata import Owner
from linkwise.cluster.requests.demand import OTHERS_MAX
from linkwise.planning.gang.crd import MEMBERS_MAX
from linkwise.planning.gang.missing_members import assembling
from linkwise.planning.gang.pod_info import PodInfo
from linkwise.planning.placement.pods.member import Member
from linkwise.workloads.members import ExpectedPods

_KIND_MAX = 63
"""Longest kind that is shown; users can write any [characters]."""


def unplannable_member(waiting: Iterable[PodInfo]) -> str | None:
    """Name the first member that is never planned, and why."""
    for pod in waiting:
        if pod.unplannable:
            return f"pod {pod.name}: {pod.unplannable}"
    return None


def violation(members: Iterable[Member]) -> str | None:
    """Name the first member whose request breaks a rule."""
    for member in members:
        if found := member.violation:
            return (
                f"pod {member.pod.metadata.name} makes a request for GPUs that breaks a rule: "
                f"{found.field}: {found.message}; {found.fix} [{found.code}]; "
                "or create the pod again"
            )
    return None


def too_many_resources(members: Iterable[Member]) -> str | None:
    """Say that members together request too many different resources; None: they do not.

    For each, the planner keeps a value of each node.
    """
    names = {name for others in {one.demand.others for one in members} for name, _ in others}
    if len(names) <= OTHERS_MAX:
        return None
    return f"its members request more than {OTHERS_MAX} different resources: let them request less"


def missing_members(
    waiting: Sequence[PodInfo],
    settled: Sequence[PodInfo],
    needed: int | None,
    late: int,
    owner: Owner | None,
    expected: ExpectedPods | None,
) -> str | None:
    """Name the missing members, and why they are missing where it is known; None: all exist."""
    if needed is None:
        return _sizeless(waiting[0], owner)
    pods = (*waiting, *settled)
    if max(needed, len(pods)) > MEMBERS_MAX:
        return f"a gang has at most {MEMBERS_MAX} members: split it"
    if len(pods) + late >= needed:
        return None
    reason = assembling([pod.name for pod in pods], needed, expected) + _sizes(pods)
    if owner and expected and expected.ordered:
        ordered = expected.ordered
        return (
            f"{reason}; {owner.kind} {owner.name} makes {ordered.late}, which never happens in a "
            f"gang: create it again with {ordered.setting}"
        )
    if owner and owner.kind == "ReplicaSet":
        return (
            f"{reason}; a Deployment makes {needed} pods of a new revision at once only with "
            "strategy.type: Recreate, or strategy.rollingUpdate.maxSurge: 100%"
        )
    return reason


def _sizes(pods: Iterable[PodInfo]) -> str:
    """Say that members state different sizes; empty: they do not."""
    sizes = sorted({pod.stated for pod in pods if pod.stated})
    if len(sizes) < 2:
        return ""
    return f"; its members state different sizes, {sizes[0]} to {sizes[-1]}: the largest counts"


def _sizeless(pod: PodInfo, owner: Owner | None) -> str:
    """Say where the size of a gang was not found, and why its pods are a gang."""
    unknown = "the number of its members is unknown: neither their labels nor "
    if owner is None or not owner.name:
        return f"{unknown}their owner has it"
    reason = f"{unknown}{owner.kind} {owner.name} has it, which may not exist or not be readable"
    if pod.waiting is None or not (kind := pod.waiting.annotations.get(GANG_KIND)):
        return reason
    return (
        f"{reason}; they are a gang because policy gangs.kinds has {kind[:_KIND_MAX]}: to place "
        f'them one by one, create them with label {GANG}: "false"'
    )


def foreign_gate(members: Iterable[Member]) -> str | None:
    """Name a scheduling gate of another system that still holds a member."""
    for member in members:
        for gate in member.pod.spec.scheduling_gates or ():
            if gate.name != GANG:
                name = member.pod.metadata.name
                return f"pod {name} waits for the scheduling gate {gate.name} of another system"
    return None


def member_without_volume(members: Iterable[Member]) -> str | None:
    """Name the first member that waits for a volume, and what it waits for."""
    for member in members:
        if member.volumes and member.volumes.waits:
            return f"pod {member.pod.metadata.name} waits for {member.volumes.waits}"
    return None


def shared_exclusive_volume(members: Iterable[Member]) -> str | None:
    """Name two members that name a claim which only one pod may use."""
    names: dict[str, str] = {}
    for member in members:
        pod = member.pod.metadata.name
        for claim in member.volumes.exclusive if member.volumes else ():
            if (other := names.setdefault(claim, pod)) != pod:
                return (
                    f"pods {other} and {pod} name PersistentVolumeClaim {claim}, which only one "
                    "pod may use (ReadWriteOncePod)"
                )
    return None


def member_without_claim(waiting: Iterable[PodInfo]) -> str | None:
    """Name a member whose claim is not made yet from its template."""
    for pod in waiting:
        brought = pod.member.request.user_claims if pod.member else None
        if brought and pod.usage and not pod.usage.claims:
            names = " or ".join(map(quoted, brought.references))
            return (
                f"kube-controller-manager has not made claim {names} of pod {pod.name} from its "
                "ResourceClaimTemplate yet: Events of the pod say why if it cannot"
            )
    return None
