"""A pod as the planner sees it: little of those that are settled, all of those that wait."""

from dataclasses import dataclass, replace

from cluster.claimant import Claimant, claimant_of
from cluster.gang import gang_mark, is_member
from cluster.keys import GANG
from cluster.pod import Owner, Pod
from cluster.record import Allocation
from cluster.request import read_request


@dataclass(frozen=True, slots=True)
class Seen:
    """What the planner keeps of a pod."""

    namespace: str
    name: str
    uid: str
    version: str
    """Its resourceVersion."""
    created: str
    """RFC 3339."""
    claimant: Claimant | None
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
        claimant = self.claimant
        given = claimant is not None and claimant.record is not None and not claimant.node
        return f"/{self.name}" if self.waiting or given else None

    @property
    def bound(self) -> bool:
        """It has a node, or had one and succeeded."""
        return self.settled and (self.claimant is None or bool(self.claimant.node))

    def given(self, allocation: Allocation) -> "Seen":
        """Return the pod as it will be once it has these GPUs."""
        if self.claimant is None:
            raise ValueError(f"{self.name} is finished and takes no GPUs")
        claimant = replace(self.claimant, record=allocation)
        return replace(self, claimant=claimant, settled=True, waiting=None, ungated=None)


def seen(pod: Pod) -> Seen:
    """Return what is kept of a pod."""
    metadata, phase = pod.metadata, pod.status.phase
    claimant = claimant_of(pod)
    gang = None
    if claimant is None or claimant.places:
        mark, _ = gang_mark(pod)
        gang = mark.name if mark and is_member(pod, read_request(pod)[0], mark) else None
    placed = claimant is not None and (bool(claimant.node) or claimant.record is not None)
    leaves = bool(metadata.deletion_timestamp)
    waits = claimant is not None and claimant.places and not placed and not leaves
    gated = waits and is_gated(pod)
    return Seen(
        namespace=metadata.namespace or "default",
        name=metadata.name,
        uid=metadata.uid,
        version=metadata.resource_version,
        created=metadata.creation_timestamp or "",
        claimant=claimant,
        gang=gang,
        controller=next((one for one in metadata.owner_references or () if one.controller), None),
        settled=(placed and not leaves) or phase == "Succeeded",
        waiting=pod if gated else None,
        ungated=pod if waits and not gated else None,
    )


def is_gated(pod: Pod) -> bool:
    """Tell whether a pod is held by our gate, until the planner places it."""
    return any(gate.name == GANG for gate in pod.spec.scheduling_gates or ())
