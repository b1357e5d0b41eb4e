"""The volumes of pods, as the claims, volumes and classes of the cluster are now."""

from collections.abc import Callable, Iterable
from dataclasses import replace

from linkwise.cluster.volumes.objects import Key, VolumeObjects
from linkwise.cluster.volumes.pod_claims import claims_of
from linkwise.cluster.volumes.pod_volumes import NO_VOLUMES, HeldVolumes, PodVolumes
from linkwise.cluster.volumes.resolve import attachments, resolve
from linkwise.planning.gang.pod_info import PodInfo

PodsOf = Callable[[Key], Iterable[PodInfo]]
"""Returns the pods that name a claim, or those of them that use it."""


def with_volumes(pod: PodInfo, objects: VolumeObjects | None, pods_of: PodsOf) -> PodInfo:
    """Return a pod with its volumes.

    Args:
        pod: The pod.
        objects: What is known of volumes; None: they may not be read, and are left to
            kube-scheduler.
        pods_of: Tells of the other pods that name a claim, at least of those that use it.

    Cost: a few look-ups for each claim.
    """
    if not pod.volume_claims or pod.usage is None:
        return pod
    if objects is None:
        return _with(pod, None, NO_VOLUMES)
    member = pod.member or pod.ungated
    if member is None:
        attached = attachments(pod.namespace, pod.volume_claims, objects)
        return _with(pod, None, HeldVolumes(attached) if attached else NO_VOLUMES)
    claims = claims_of(member.pod.spec, pod.name)

    def users(claim: str) -> str | None:
        others = (one for one in pods_of((pod.namespace, claim)) if one.uid != pod.uid)
        return next((f"pod {one.name}" for one in others if uses_volumes(one)), None)

    found = resolve(pod.namespace, pod.uid, claims, objects, users)
    return _with(pod, found, found.held)


def with_present_volumes(pod: PodInfo, objects: VolumeObjects | None) -> PodInfo:
    """Return a pod that does not exist yet, with those of its volumes whose claims exist.

    Others may be made with it, as those of ephemeral volumes and StatefulSets are: they tie it to
    no node, and are named.
    """
    if pod.member is None or objects is None:
        return pod
    claims = claims_of(pod.member.pod.spec, pod.name)
    if not claims:
        return pod
    own = [one for one in claims if not one.volume]
    present = [one for one in own if objects.claim((pod.namespace, one.name))]
    absent = tuple(one.name for one in own if one not in present)
    found = resolve(pod.namespace, pod.uid, present, objects, lambda _: None)
    volumes = replace(found, absent=absent)
    return replace(pod, member=replace(pod.member, volumes=volumes))


def uses_volumes(pod: PodInfo) -> bool:
    """Return whether a pod is on a node, or is to be, so that its claims are in use."""
    return pod.usage is not None and bool(pod.usage.target)


def volumes_in(pod: PodInfo | None) -> tuple[PodVolumes | None, HeldVolumes]:
    """Return the volumes of a pod, to compare them."""
    member = (pod.member or pod.ungated) if pod else None
    held = pod.usage.volumes if pod and pod.usage else NO_VOLUMES
    return member.volumes if member else None, held


def _with(pod: PodInfo, volumes: PodVolumes | None, held: HeldVolumes) -> PodInfo:
    usage = replace(pod.usage, volumes=held) if pod.usage else None
    member = replace(pod.member, volumes=volumes) if pod.member else None
    ungated = replace(pod.ungated, volumes=volumes) if pod.ungated else None
    return replace(pod, usage=usage, member=member, ungated=ungated)
