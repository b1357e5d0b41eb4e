"""Findings about the workload that owns a gang; admission by the API server sees only the pod."""

from collections.abc import Collection
from dataclasses import dataclass

import msgspec

from linkwise.cluster.finding import Code, Finding, Severity
from linkwise.cluster.gang import Mark, link_strictness
from linkwise.cluster.keys import (
    GANG,
    GANG_SIZE,
    KOORDINATOR_GANG_GROUPS,
    KOORDINATOR_GANG_NAME,
    POD_GROUP,
)
from linkwise.cluster.objects.pod import NewPod
from linkwise.workloads.kind import OrderedStart
from linkwise.workloads.operator_keys import JOB_COMPLETION_INDEX
from linkwise.workloads.owned_gang import (
    OWNER_PATH,
    distributed_kind,
    is_taken_out,
    waits_for_leader,
)

_POD_GROUPS = ("spec.schedulingGroup.podGroupName", f"metadata.labels[{POD_GROUP}]")
"""Marks that name a PodGroup, which has the size."""
_KOORDINATOR = f"metadata.annotations[{KOORDINATOR_GANG_NAME}]"
_names = msgspec.json.Decoder(list[str])


@dataclass(frozen=True, slots=True)
class GangOwner:
    """The workload whose controller creates the pod, if known (`check`, dry-run)."""

    kind: str
    name: str
    members: int | None = None
    """Number of GPU pods; None if unknown."""
    ordered: OrderedStart | None = None
    """It creates some pods of the gang only when others are ready."""
    starts_with: int | None = None
    """How many of its GPU pods suffice to start where all are made at once; None: all."""
    rolled_out: int | None = None
    """How many pods of a new revision it makes before they run; None: all."""
    fails_when_evicted: bool = False
    """It counts an evicted pod as a failure (a batch Job without the policy to ignore it)."""

    @property
    def sufficient(self) -> int | None:
        """How many of its GPU pods a gang by this owner starts with; None: all."""
        return 1 if self.ordered else self.starts_with


def gang_findings(pod: NewPod, mark: Mark, workload: GangOwner | None) -> list[Finding]:
    """Return findings that prevent a member of a gang from being placed, or moved later."""
    _, of_link = link_strictness(pod)
    found = [*of_link, *_groups(pod, mark)]
    if not _has_size(mark, pod, workload):
        found.append(_sizeless(mark))
    if workload is None:
        return found
    if workload.ordered and mark.source == OWNER_PATH:
        found.append(_in_parts(workload, workload.ordered))
    elif workload.ordered:
        found.append(_ordered(mark, workload, workload.ordered))
    size = mark.min_available or mark.total
    if size is not None and workload.rolled_out is not None and workload.rolled_out < size:
        found.append(_stuck(mark, workload, workload.rolled_out, size))
    if workload.fails_when_evicted:
        found.append(_unmovable(mark, workload))
    return found


def pod_by_pod_findings(
    pod: NewPod, workload: GangOwner | None, kinds: Collection[str]
) -> list[Finding]:
    """Return a warning for a pod without a mark whose owner makes pods that work together.

    Args:
        pod: A pod with GPUs that Linkwise may place.
        workload: The object that creates it; None where it is not known.
        kinds: As the policy has them (`gangs.kinds`).
    """
    if workload is None or (workload.members or 0) < 2 or is_taken_out(pod):
        return []
    kind = distributed_kind(pod)
    if kind and waits_for_leader(pod):
        reason = "with exclusive topology it makes most pods once others have nodes"
        return [_pod_by_pod(workload, reason, "remove the annotation exclusive-topology")]
    if kind and kind not in kinds:
        return [_pod_by_pod(workload, f"policy gangs.kinds lacks {kind}", f"add {kind} there")]
    if kind is None and JOB_COMPLETION_INDEX in pod.labels:
        reason, fix = "an Indexed Job is a gang by a mark only", f"annotate its pods with {GANG}"
        return [_pod_by_pod(workload, reason, fix)]
    return []


def _in_parts(workload: GangOwner, ordered: OrderedStart) -> Finding:
    return _pod_by_pod(workload, f"it makes {ordered.late}", f"set {ordered.setting}")


def _pod_by_pod(workload: GangOwner, reason: str, fix: str) -> Finding:
    return Finding(
        Code.GANG_POD_BY_POD,
        Severity.WARNING,
        OWNER_PATH,
        workload.name,
        f"pods of {workload.kind} {workload.name} are placed one by one: {reason}",
        f'{fix}, or say that each works alone by pod label {GANG}: "false"',
    )


def _groups(pod: NewPod, mark: Mark) -> list[Finding]:
    """Return an error for a gang that Koordinator would start only together with others."""
    text = (pod.metadata.annotations or {}).get(KOORDINATOR_GANG_GROUPS)
    if text is None or mark.source != _KOORDINATOR:
        return []
    try:
        groups = _names.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError):
        # Koordinator ignores it, too.
        return []
    if all(group.rpartition("/")[2] == mark.name for group in groups):
        return []
    return [
        Finding(
            Code.GANG_GROUPS,
            Severity.ERROR,
            f"metadata.annotations[{KOORDINATOR_GANG_GROUPS}]",
            text,
            f"gang {mark.name} is to start only together with other gangs, and would start alone",
            "give all pods one gang name and the number of all of them, and remove the annotation",
        )
    ]


def _has_size(mark: Mark, pod: NewPod, workload: GangOwner | None) -> bool:
    if mark.min_available is not None or mark.total is not None or mark.source in _POD_GROUPS:
        return True
    if workload is not None:
        return workload.members is not None
    # The planner reads the owner; an API server does not send it.
    return any(owner.controller for owner in pod.metadata.owner_references or ())


def _sizeless(mark: Mark) -> Finding:
    return Finding(
        Code.GANG_SIZE,
        Severity.ERROR,
        mark.source,
        mark.name,
        f"the number of pods of gang {mark.name} is unknown, so it would wait forever",
        f'write their number next to the name, such as annotation {GANG_SIZE}: "4"',
    )


def _ordered(mark: Mark, workload: GangOwner, ordered: OrderedStart) -> Finding:
    return Finding(
        ordered.code,
        Severity.ERROR,
        mark.source,
        mark.name,
        f"{workload.kind} {workload.name} makes {ordered.late}, which waits for the whole gang",
        f"set {ordered.setting} in the {workload.kind}",
    )


def _stuck(mark: Mark, workload: GangOwner, rolled_out: int, size: int) -> Finding:
    pods = f"{rolled_out} pod" if rolled_out == 1 else f"{rolled_out} pods"
    return Finding(
        Code.GANG_ORDERED,
        Severity.WARNING,
        mark.source,
        mark.name,
        f"{workload.kind} {workload.name} can never be rolled out: it makes {pods} of a new "
        f"revision while the others run, and their gang waits for {size}",
        "set strategy.type: Recreate, or strategy.rollingUpdate.maxSurge: 100%",
    )


def _unmovable(mark: Mark, workload: GangOwner) -> Finding:
    return Finding(
        Code.GANG_UNMOVABLE,
        Severity.WARNING,
        mark.source,
        mark.name,
        f"{workload.kind} {workload.name} counts an evicted pod as a failure, "
        "so that its gang cannot be moved once placed",
        f"give the {workload.kind} a podFailurePolicy whose rules have one with action: Ignore and "
        "onPodConditions: [{type: DisruptionTarget}]",
    )
