"""The part of a pod that the scorer keeps: little of a placed pod, more of one that waits."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from linkwise.cluster.account.pod_usage import PodUsage, pod_usage
from linkwise.cluster.allocations.record import Allocation
from linkwise.cluster.gang import Mark, gang_mark, may_be_member
from linkwise.cluster.keys import GANG_KIND, LEFT_TO_SCHEDULER
from linkwise.cluster.objects.kube_object import pod_path
from linkwise.cluster.objects.metadata import Metadata, Owner, controller_of
from linkwise.cluster.objects.pod import Pod, PodSpec
from linkwise.cluster.requests.demand import Demand
from linkwise.cluster.requests.neighbors.rules import neighbor_rules
from linkwise.cluster.requests.request import Request
from linkwise.cluster.requests.request_reader import read_request
from linkwise.cluster.volumes.node_choice import NodeChoice
from linkwise.cluster.volumes.pod_claims import names_of_claims
from linkwise.planning.gang.compact_pod import compact, oversize_reason, weight
from linkwise.planning.gang.pod_life import Life, life_of
from linkwise.planning.gang.scheduler_answer import MESSAGE_MAX
from linkwise.planning.placement.pods.member import Member, first_error, new_member
from linkwise.workloads.kinds.leader_worker_set import is_leader
from linkwise.workloads.owned_gang import owned_gang, owner_gang
from linkwise.workloads.registry import GANG_KINDS

_CLAIMS_MAX = 32
"""ResourceClaims of a pod that tie it to nodes; usual pods name up to three."""
_DELEGATED_MAX = 300
"""A reason that admission writes is shorter [characters]."""
_PREPARATION = 60.0
"""A node usually prepares devices, volumes and network within this time [s]."""


@dataclass(frozen=True, slots=True)
class PodInfo:
    """A pod as the scorer's cache keeps it."""

    namespace: str
    name: str
    uid: str
    version: str
    """Its resourceVersion."""
    created: str
    """RFC 3339."""
    usage: PodUsage | None
    """The resources that it holds or will hold; None once it is finished."""
    gang: str | None
    """Name of the gang that it is planned with, or that it is a member of since it was bound."""
    controller: Owner | None
    settled: bool
    """It counts towards its gang's size: it has its GPUs and stays, or had them and succeeded."""
    member: Member | None
    """The parsed pod, while it waits for GPUs behind our scheduling gate."""
    ungated: Member | None = None
    """The parsed pod, while it waits for GPUs without our gate, so that a scheduler places it."""
    unplannable: str | None = None
    """Why it is not planned although it waits; only its name is kept then."""
    was_tried: bool = False
    """A scheduler has looked for a node for it since its gates were removed."""
    unschedulable: str = ""
    """The message of the scheduler that does not bind it, while it has GPUs and no node."""
    unprepared_since: float | None = None
    """Since when its node prepares it [s since 1970], if it has a claim; None: it is prepared."""
    lacks_capacity: bool = False
    """Its condition asks an autoscaler for nodes."""
    stated: int | None = None
    """The size of its gang in its mark."""
    follows: str | None = None
    """Name of the gang whose mark it has although it asks for no GPUs, so that it is no member."""
    is_by_owner: bool = False
    """It is a member by the kind of its owner, without a mark of a user."""
    kin: str | None = None
    """Name of the gang of its owner, of which it is no member: it is placed by itself, since it was
    created while the policy did not have the kind, or was taken out."""
    is_group_leader: bool = False
    """It may own the object that makes the other members of its gang."""
    nominated: str = ""
    """Its nominated node, until it is bound or has GPUs."""
    lacks_devices: bool = False
    """kube-scheduler finds no devices for its claims, none of which Linkwise made."""
    delegated: str = ""
    """Why kube-scheduler allocates its claims for GPUs, while it has no node."""
    weight: int = 0
    """Memory for the pod while it waits [bytes, about]."""
    life: Life | None = None
    """What an eviction depends on, of a pod that has GPUs."""
    device_claims: tuple[str, ...] = ()
    """Names of ResourceClaims of other drivers that it names while it waits, at most 32."""
    volume_claims: tuple[str, ...] = ()
    """Names of the PersistentVolumeClaims that it names, until it is finished."""
    annotations: int = 0
    """Size of all its annotations while it waits [characters]; the API server limits it."""

    @property
    def key(self) -> tuple[str, str]:
        """Its namespace and name."""
        return self.namespace, self.name

    @property
    def path(self) -> str:
        """Its path on the API server."""
        return pod_path(self.namespace, self.name)

    @property
    def waiting(self) -> Pod | None:
        """The pod, while it waits for GPUs behind our scheduling gate."""
        return self.member.pod if self.member else None

    @property
    def group(self) -> str | None:
        """The name under which it is planned: its gang's, or its own until it is bound, or None.

        The name of a pod on its own begins with a slash, which no label value contains.
        """
        if self.gang is not None:
            return self.gang
        usage = self.usage
        is_assigned = usage is not None and usage.record is not None and not usage.node
        return f"/{self.name}" if self.member or is_assigned else None

    @property
    def bound(self) -> bool:
        """It has a node, or had one and succeeded."""
        return self.settled and (self.usage is None or bool(self.usage.node))

    def is_unprepared(self, now: float) -> bool:
        """Return whether its node has not prepared it for longer than usual.

        Args:
            now: Seconds since 1970.
        """
        return self.unprepared_since is not None and now - self.unprepared_since > _PREPARATION

    @property
    def is_ending(self) -> bool:
        """It is being deleted, and has GPUs until it has ended."""
        usage = self.usage
        has_gpus = usage is not None and bool(usage.target and (usage.places or usage.nvidia))
        return has_gpus and not self.settled

    @property
    def allocation(self) -> Allocation | None:
        """Its GPUs by our record; None where it has none, or an unreadable one."""
        return self.usage.allocation if self.usage else None

    def with_allocation(self, allocation: Allocation) -> "PodInfo":
        """Return the pod as it will be once it has these GPUs."""
        if self.usage is None:
            raise ValueError(f"{self.name} is finished and takes no GPUs")
        usage = replace(self.usage, record=allocation)
        return replace(self, usage=usage, settled=True, member=None, ungated=None)


def pod_info(pod: Pod) -> PodInfo:
    """Return the part of a pod that is kept."""
    metadata, phase = pod.metadata, pod.status.phase
    namespace = metadata.namespace or "default"
    request, findings = read_request(pod)
    usage = pod_usage(pod, request)
    mark, _ = gang_mark(pod)
    gang = _gang_of(pod, request, mark)
    is_placed = usage is not None and (bool(usage.node) or usage.record is not None)
    is_terminating, is_done = bool(metadata.deletion_timestamp), phase == "Succeeded"
    info = PodInfo(
        namespace=namespace,
        name=metadata.name,
        uid=metadata.uid,
        version=metadata.resource_version,
        created=metadata.creation_timestamp or "",
        usage=usage,
        gang=gang,
        controller=controller_of(metadata.owner_references or ()),
        settled=(is_placed or is_done) and not is_terminating,
        member=None,
        was_tried=pod.status.was_tried,
        unschedulable=""
        if not is_placed or pod.spec.node_name
        else pod.status.unschedulable[:MESSAGE_MAX],
        unprepared_since=_unprepared_since(pod, usage),
        lacks_capacity=pod.status.lacks_capacity,
        stated=(mark.min_available or mark.total) if mark else None,
        follows=mark.name if mark and usage and not gang and not is_terminating else None,
        is_by_owner=gang is not None and GANG_KIND in pod.annotations,
        kin=_kin_of(pod, request, mark) if gang is None and (usage or is_done) else None,
        is_group_leader=is_leader(pod),
        nominated="" if is_placed or is_terminating else pod.status.nominated_node_name or "",
        lacks_devices=not request.places and not pod.spec.node_name and pod.status.lacks_devices,
        delegated=""
        if pod.spec.node_name
        else pod.annotations.get(LEFT_TO_SCHEDULER, "")[:_DELEGATED_MAX],
        volume_claims=names_of_claims(pod.spec, metadata.name) if usage else (),
        life=life_of(pod, usage)
        if is_placed and usage and (usage.places or usage.nvidia)
        else None,
    )
    if usage is None or not usage.places or is_placed or is_terminating:
        return info
    kept = compact(pod)
    member = Member(
        pod=kept,
        name=usage.name,
        request=request,
        demand=usage.demand,
        gang=f"{namespace}/{gang}" if gang else None,
        violation=first_error(findings),
        rules=neighbor_rules(pod, namespace),
        neighbor=usage.neighbor,
    )
    info = replace(
        info,
        member=member if pod.spec.is_gated else None,
        ungated=None if pod.spec.is_gated else member,
        device_claims=_other_claims(pod, usage.claims),
        weight=weight(kept) + member.rules.weight,
        annotations=sum(len(key) + len(text) for key, text in pod.annotations.items()),
    )
    reason = member.rules.oversize or oversize_reason(kept, usage.demand, info.weight)
    return unplanned(info, f"it is too large to plan: {reason}") if reason else info


def _other_claims(pod: Pod, own: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of the claims of a pod besides those by which Linkwise gives it GPUs."""
    made = (*(pod.spec.resource_claims or ()), *(pod.status.resource_claim_statuses or ()))
    names = dict.fromkeys(one.resource_claim_name for one in made)
    return tuple(name for name in names if name and name not in own)[:_CLAIMS_MAX]


def with_claim_places(pod: PodInfo, places: Mapping[tuple[str, str], NodeChoice]) -> PodInfo:
    """Return a waiting pod with the places of its claims of other drivers.

    Args:
        pod: The pod.
        places: Of the claims that have devices, by namespace and name. Those that name more nodes
            than are compared are left to kube-scheduler.
    """
    if not pod.device_claims:
        return pod
    found = (places.get((pod.namespace, name)) for name in pod.device_claims)
    chosen = tuple(dict.fromkeys(one for one in found if one and not one.is_too_large))
    return replace(
        pod,
        member=replace(pod.member, claim_places=chosen) if pod.member else None,
        ungated=replace(pod.ungated, claim_places=chosen) if pod.ungated else None,
    )


def _gang_of(pod: Pod, request: Request, mark: Mark | None) -> str | None:
    """Return the name of the gang of a pod; None: it has none.

    A pod with GPUs that was bound without admission is a member, too: it was created before
    Linkwise was installed, or while no webhook ran. So it lacks the mark of a gang by owner, and
    whether its own claims are for GPUs is not known.
    """
    is_bound = bool((request.gpus or pod.spec.resource_claims) and pod.spec.node_name)
    if not (request.places or is_bound):
        return None
    if mark is None and not request.places:
        return owner_gang(pod) if owned_gang(pod, GANG_KINDS) else None
    return mark.name if mark and may_be_member(pod, mark) else None


def _kin_of(pod: Pod, request: Request, mark: Mark | None) -> str | None:
    """Return the gang of the owner of a pod with GPUs that is no member of it, and lives."""
    has_gpus = bool(request.gpus or pod.spec.resource_claims)
    is_left = mark is not None or bool(pod.metadata.deletion_timestamp) or not has_gpus
    return None if is_left else owner_gang(pod)


def _unprepared_since(pod: Pod, usage: PodUsage | None) -> float | None:
    has_claim = usage is not None and bool(usage.claims and usage.node)
    return pod.status.unprepared_since if has_claim else None


def unplanned(pod: PodInfo, reason: str) -> PodInfo:
    """Return a pod that is not planned; little more than its name is kept.

    Args:
        pod: The pod as it would be planned.
        reason: Why it is not planned, for users.
    """
    member, usage = None, pod.usage
    if pod.member is not None:
        metadata = Metadata(
            name=pod.name, namespace=pod.namespace, uid=pod.uid, creation_timestamp=pod.created
        )
        spec = PodSpec(scheduling_gates=pod.member.pod.spec.scheduling_gates)
        member = new_member(Pod(metadata=metadata, spec=spec), pod.namespace, pod.member.gang)
    if usage is not None and not usage.target:
        usage = replace(usage, demand=Demand())
    return replace(pod, usage=usage, member=member, ungated=None, unplannable=reason)
