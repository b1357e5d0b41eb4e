"""Follow the claims of a pod to their volumes and classes.

Source: the plugins VolumeBinding, VolumeZone, NodeVolumeLimits and VolumeRestrictions of
kube-scheduler 1.36. Not read: VolumeAttachments, capacities of CSI drivers (CSIStorageCapacity),
and volumes of drivers inside Kubernetes beside the labels of their zones.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from linkwise.cluster.finding import quoted
from linkwise.cluster.volumes.claim import Claim
from linkwise.cluster.volumes.free_volumes import Candidates
from linkwise.cluster.volumes.node_choice import NodeChoice, only_node
from linkwise.cluster.volumes.objects import VolumeObjects
from linkwise.cluster.volumes.pod_claims import NamedClaim
from linkwise.cluster.volumes.pod_volumes import Binding, PodVolumes
from linkwise.cluster.volumes.volume import Attachment, PersistentVolume

_TOO_LARGE = "which names more nodes than are compared: give these nodes a label in common"

Users = Callable[[str], str | None]
"""Returns another pod that has, or is to have, a claim of a name; None: no pod."""


@dataclass
class _Found:
    """What is found of the claims of one pod."""

    waits: str | None = None
    choices: dict[NodeChoice, None] = field(default_factory=dict)
    bindings: list[Binding] = field(default_factory=list)
    attached: set[Attachment] = field(default_factory=set)
    exclusive: list[str] = field(default_factory=list)

    def wait(self, reason: str) -> None:
        self.waits = self.waits or reason

    def require(self, choice: NodeChoice | None, what: str) -> None:
        if choice is None:
            return
        if choice.is_too_large:
            self.wait(f"{what}, {_TOO_LARGE}")
        self.choices[choice] = None


def resolve(
    namespace: str, uid: str, claims: Iterable[NamedClaim], objects: VolumeObjects, users: Users
) -> PodVolumes:
    """Return what the volumes of a pod require.

    Args:
        namespace: Of the pod.
        uid: Of the pod.
        claims: Those that it names.
        objects: What is known of them.
        users: Tells of other pods that use a claim.

    Cost: a few look-ups for each claim.
    """
    found = _Found()
    for named in claims:
        claim = objects.claim((namespace, named.name))
        name = f"PersistentVolumeClaim {namespace}/{named.name}"
        found.exclusive += [named.name] if claim and claim.is_exclusive else []
        if claim is None:
            found.wait(f"{name}, which {_absent(named)}")
        elif reason := _unusable(claim, named, uid, users):
            found.wait(f"{name}, {reason}")
        elif claim.is_bound:
            _bound(found, claim, named, objects, name)
        else:
            _unbound(found, (namespace, named.name), claim, objects, name)
    return PodVolumes(
        found.waits,
        tuple(found.choices),
        tuple(found.bindings),
        frozenset(found.attached),
        tuple(found.exclusive),
    )


def attachments(
    namespace: str, claims: Iterable[str], objects: VolumeObjects
) -> frozenset[Attachment]:
    """Return the volumes that are attached to the node of a pod for the claims that it names."""
    found: set[Attachment] = set()
    for name in claims:
        if claim := objects.claim((namespace, name)):
            attachment = _attachment((namespace, name), claim, objects)
            found |= {attachment} if attachment else set()
    return frozenset(found)


def _absent(named: NamedClaim) -> str:
    if named.volume:
        return f"kube-controller-manager has not made yet for volume {quoted(named.volume)}"
    return "does not exist"


def _unusable(claim: Claim, named: NamedClaim, uid: str, users: Users) -> str | None:
    """Return why a pod cannot use a claim, whatever its volume is; None: it can."""
    if claim.is_lost:
        return f"which has lost its PersistentVolume {claim.volume}"
    if claim.is_ending:
        return "which is being deleted"
    if named.volume and claim.owner != uid:
        return f"whose name volume {quoted(named.volume)} needs, and which is not that of this pod"
    if claim.is_exclusive and (user := users(named.name)):
        return f"which only one pod may use (ReadWriteOncePod), and {user} does"
    return None


def _bound(
    found: _Found, claim: Claim, named: NamedClaim, objects: VolumeObjects, name: str
) -> None:
    volume = objects.volume(claim.volume)
    if volume is None:
        found.wait(f"PersistentVolume {claim.volume} of {name}, which does not exist")
        return
    found.require(volume.affinity, f"PersistentVolume {claim.volume}")
    if not named.volume:
        # As in kube-scheduler these labels do not count for ephemeral volumes.
        for choice in volume.places:
            found.require(choice, f"PersistentVolume {claim.volume}")
    found.attached |= {volume.attachment} if volume.attachment else set()


def _unbound(
    found: _Found, key: tuple[str, str], claim: Claim, objects: VolumeObjects, name: str
) -> None:
    made_by = objects.storage_class(claim.storage_class) if claim.storage_class else None
    if made_by is None or not made_by.waits_for_pod or claim.volume:
        unknown = made_by is None and claim.storage_class and not claim.volume
        missing = f": there is no StorageClass {claim.storage_class}" if unknown else ""
        found.wait(f"{name}, which is not bound to a PersistentVolume yet{missing}")
        return
    if attachment := _attachment(key, claim, objects):
        found.attached.add(attachment)
    of_class = f"StorageClass {claim.storage_class}"
    candidates = _candidates(key, claim, objects)
    if claim.selected_node is not None:
        found.require(only_node(claim.selected_node), name)
    if made_by.provisioner and not (candidates.total and made_by.topologies):
        found.require(made_by.topologies, of_class)
    elif candidates.total:
        # One that is made needs no choice of its own: the binding knows for which nodes it can be.
        provision = made_by.topologies if made_by.provisioner else None
        found.bindings.append(Binding(claim.storage_class, candidates, provision))
    else:
        found.wait(f"a free PersistentVolume of {of_class} for {name}")


def _candidates(key: tuple[str, str], claim: Claim, objects: VolumeObjects) -> Candidates:
    """Return the volumes that an unbound claim may bind; none once one is made for it."""
    if claim.selected_node is not None or claim.wanted is None:
        return Candidates()
    return objects.free(claim.storage_class).candidates(key, claim.uid, claim.wanted)


def _attachment(key: tuple[str, str], claim: Claim, objects: VolumeObjects) -> Attachment | None:
    """Return what a driver attaches for a claim; None: nothing that counts.

    As in kube-scheduler one without a volume counts by the provisioner that is to make it.
    """
    volume: PersistentVolume | None = objects.volume(claim.volume) if claim.volume else None
    if volume is not None:
        return volume.attachment
    made_by = objects.storage_class(claim.storage_class) if claim.storage_class else None
    if made_by is None or not made_by.provisioner:
        return None
    return Attachment(made_by.provisioner, "/".join(("", *key)))
