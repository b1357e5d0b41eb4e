"""A pod as the planner sees it: little of those that are settled, all of those that wait."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache

from cluster.demand import Demand
from cluster.gang import gang_mark, is_leader, is_member
from cluster.pod import Metadata, Owner, Pod, PodSpec
from cluster.pod_usage import PodUsage, pod_usage
from cluster.record import Allocation
from cluster.request import read_request
from scorer.gang.compact_pod import compact, oversize, weight

_LONGEST = 320
"""Of what an ownerReference holds: no object's name or type is longer [characters]."""


@dataclass(frozen=True, slots=True)
class PodInfo:
    """What the planner keeps of a pod."""

    namespace: str
    name: str
    uid: str
    version: str
    """Its resourceVersion."""
    created: str
    """RFC 3339."""
    usage: PodUsage | None
    """What it holds, or will; None once it is finished."""
    gang: str | None
    """Name of the gang that it is planned with."""
    controller: Owner | None
    settled: bool
    """It counts towards its gang's size: it has its GPUs and stays, or had them and succeeded."""
    waiting: Pod | None
    """The pod, while it waits behind our gate for its GPUs."""
    ungated: Pod | None = None
    """The pod, while it waits for its GPUs behind no gate of ours: a scheduler brings it."""
    unplannable: str | None = None
    """Why it is given nothing although it waits: of the pod no more is kept than its name."""
    was_tried: bool = False
    """A scheduler has looked for a node for it since its gates were removed."""
    leads: bool = False
    """It may own what makes the other members of its gang."""
    weight: int = 0
    """What it takes to keep the pod while it waits [bytes, about]."""
    annotations: int = 0
    """Size of all its annotations while it waits [characters], which the API server limits."""

    @property
    def key(self) -> tuple[str, str]:
        """Its namespace and name."""
        return self.namespace, self.name

    @property
    def group(self) -> str | None:
        """What it is planned with: its gang, or itself until it is bound; None where that is past.

        No gang has the name of a pod on its own: a slash is in no label's value.
        """
        if self.gang is not None:
            return self.gang
        usage = self.usage
        given = usage is not None and usage.record is not None and not usage.node
        return f"/{self.name}" if self.waiting or given else None

    @property
    def bound(self) -> bool:
        """It has a node, or had one and succeeded."""
        return self.settled and (self.usage is None or bool(self.usage.node))

    def with_allocation(self, allocation: Allocation) -> "PodInfo":
        """Return the pod as it will be once it has these GPUs."""
        if self.usage is None:
            raise ValueError(f"{self.name} is finished and takes no GPUs")
        usage = replace(self.usage, record=allocation)
        return replace(self, usage=usage, settled=True, waiting=None, ungated=None)


def pod_info(pod: Pod) -> PodInfo:
    """Return what is kept of a pod."""
    metadata, phase = pod.metadata, pod.status.phase
    usage = pod_usage(pod)
    gang = None
    if usage is None or usage.places:
        mark, _ = gang_mark(pod)
        gang = mark.name if mark and is_member(pod, read_request(pod)[0], mark) else None
    placed = usage is not None and (bool(usage.node) or usage.record is not None)
    leaves = bool(metadata.deletion_timestamp)
    found = PodInfo(
        namespace=metadata.namespace or "default",
        name=metadata.name,
        uid=metadata.uid,
        version=metadata.resource_version,
        created=metadata.creation_timestamp or "",
        usage=usage,
        gang=gang,
        controller=controller_of(metadata.owner_references or ()),
        settled=(placed and not leaves) or phase == "Succeeded",
        waiting=None,
        was_tried=pod.status.was_tried,
        leads=is_leader(pod),
    )
    if usage is None or not usage.places or placed or leaves:
        return found
    kept = compact(pod)
    gated = pod.spec.is_gated
    found = replace(
        found,
        waiting=kept if gated else None,
        ungated=None if gated else kept,
        weight=weight(kept),
        annotations=sum(len(key) + len(text) for key, text in pod.annotations.items()),
    )
    why = oversize(kept, usage.demand, found.weight)
    return unplanned(found, f"it is too large to plan: {why}") if why else found


def unplanned(pod: PodInfo, why: str) -> PodInfo:
    """Return a pod of which next to nothing is kept, since it is not planned.

    Args:
        pod: What would be kept of it.
        why: What people are shown as the reason.
    """
    waiting = None
    if pod.waiting is not None:
        metadata = Metadata(
            name=pod.name, namespace=pod.namespace, uid=pod.uid, creation_timestamp=pod.created
        )
        spec = PodSpec(scheduling_gates=pod.waiting.spec.scheduling_gates)
        waiting = Pod(metadata=metadata, spec=spec)
    usage = pod.usage
    if usage is not None and not usage.target:
        usage = replace(usage, demand=Demand())
    return replace(pod, usage=usage, waiting=waiting, ungated=None, unplannable=why)


def controller_of(owners: Iterable[Owner]) -> Owner | None:
    """Return the controller among owners; None for one that no object can be."""
    owner = next((one for one in owners if one.controller), None)
    if owner is None:
        return None
    texts = owner.kind, owner.api_version, owner.name, owner.uid
    return _same(owner) if all(len(text) <= _LONGEST for text in texts) else None


@lru_cache(maxsize=4096)
def _same(owner: Owner) -> Owner:
    """Return the same object for all pods of an owner, of which there may be many."""
    return owner
