"""The number of members that a waiting gang needs: as stated, or as its owner declares. Pure."""

from collections.abc import Sequence

from linkwise.cluster.gang import GangKey
from linkwise.planning.gang.owners import Owners
from linkwise.planning.gang.pod_info import PodInfo
from linkwise.workloads.pod_group import group_paths


def needed_members(
    key: GangKey,
    waiting: Sequence[PodInfo],
    owners: Owners,
    followers: int,
    kin: int,
) -> int | None:
    """Return how many members a gang needs; None where it is not known, or not known yet.

    A size above the number of pods with GPUs counts pods without them, too: mpi-operator counts the
    launcher, and a PodGroup all pods of its name. A larger one counts pods of other owners.

    Args:
        key: Of the gang.
        waiting: Its pods that wait.
        owners: Their owners.
        followers: The number of pods without GPUs that have its mark.
        kin: The number of pods of its owner that are placed by themselves.
    """
    needed = _needed(key, waiting, owners, followers)
    is_by_owner = needed is not None and waiting[0].is_by_owner
    return owners.without_kin(key, needed, kin) if needed and is_by_owner else needed


def _needed(key: GangKey, waiting: Sequence[PodInfo], owners: Owners, followers: int) -> int | None:
    joint = owners.joint.get(key)
    if joint and not joint.is_certain:
        return None
    first = waiting[0]
    stated = max(pod.stated or 0 for pod in waiting)
    if not stated:
        groups = [size for part in owners.parts(key) if (size := owners.groups.get(part))]
        is_unread = owners.is_read_on_demand and key not in owners.groups and not groups
        if is_unread and first.member and group_paths(first.member.pod, key.namespace):
            return None
        stated = max(groups, default=0)
    declared, total = owners.declared_of(key), owners.total_of(key)
    if not stated or declared is None:
        return stated or owners.sufficient_of(key)
    if total is None or stated <= total:
        return min(stated, declared)
    return max(stated - followers, 1)
