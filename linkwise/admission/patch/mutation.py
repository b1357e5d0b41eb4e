"""Patch operations for labels, annotations, the scheduling gate and environment variables."""

from collections.abc import Iterable, Mapping

from linkwise.admission.operations import Operation, add, add_keys, append, remove
from linkwise.admission.patch.device_variables import PatchSet, hide_devices, set_visible_devices
from linkwise.admission.patch.unrequested_devices import remove_devices
from linkwise.admission.read import claims
from linkwise.admission.read.parsed_pod import ParsedPod
from linkwise.admission.read.sharing import replicas
from linkwise.cluster.finding import Code, Finding, Severity
from linkwise.cluster.gang import Link, link_alone
from linkwise.cluster.keys import (
    CLAIMED_GPUS,
    DEFAULT_SCHEDULER,
    GANG,
    LEFT_TO_SCHEDULER,
    RECORD,
    VISIBLE_DEVICES_OF,
)
from linkwise.cluster.objects.pod import NewPod, NewPodSpec
from linkwise.cluster.pointer import escape
from linkwise.policy.profile import ProfileResult
from linkwise.policy.snapshot import PolicySnapshot


def record_keys(annotations: Iterable[str]) -> list[str]:
    """Return the annotations that belong to the record of an allocation, or to a claim."""
    return [
        key
        for key in annotations
        if key in RECORD or key == CLAIMED_GPUS or key.startswith(VISIBLE_DEVICES_OF)
    ]


def without_record(annotations: dict[str, str]) -> dict[str, str]:
    """Return the annotations without the record of an allocation."""
    record = record_keys(annotations)
    if not record:
        return annotations
    return {key: value for key, value in annotations.items() if key not in record}


def drop_record(
    annotations: Mapping[str, str], *, has_claim: bool
) -> tuple[list[Operation], list[Finding]]:
    """Return the operations that remove a record, and a warning for each key.

    Only the scorer may write the record of an allocation, and only admission the amounts of a
    claim.

    Args:
        annotations: The pod's own.
        has_claim: The pod names a claim of Linkwise, so that its amounts stay.
    """
    keys = [key for key in record_keys(annotations) if not (has_claim and key == CLAIMED_GPUS)]
    if not keys:
        return [], []
    operations = [remove(f"/metadata/annotations/{escape(key)}", "record removed") for key in keys]
    return operations, [_removed(key, annotations[key]) for key in keys]


def _removed(key: str, value: str) -> Finding:
    writer = "admission" if key == CLAIMED_GPUS else "the scorer"
    return Finding(
        Code.RECORD_REMOVED,
        Severity.WARNING,
        f"metadata.annotations[{key}]",
        value,
        f"annotation {key} is removed: {writer} writes it when it chooses the GPUs",
        "remove the annotation",
    )


def add_profiles(pod: NewPod, result: ProfileResult) -> list[Operation]:
    """Return the operations that add labels and annotations of profiles."""
    rules = {path: f"profile {trace.name}" for trace in result.trace for path in trace.added}
    metadata, annotations = pod.metadata, without_record(result.added_annotations)
    return [
        *_add("labels", metadata.labels, result.added_labels, rules),
        *_add("annotations", metadata.annotations, annotations, rules),
    ]


def _add(
    table: str,
    present: Mapping[str, str] | None,
    added: Mapping[str, str],
    rules: Mapping[str, str],
) -> list[Operation]:
    wanted = {key: (text, rules[f"metadata.{table}[{key}]"]) for key, text in added.items()}
    return add_keys(f"/metadata/{table}", present, wanted)


def is_annotated(parsed: ParsedPod, annotations: Mapping[str, str]) -> bool:
    """Return whether a pod has the amounts of its own claims already."""
    brought = parsed.request.user_claims
    return brought is not None and annotations.get(CLAIMED_GPUS) == brought.annotation


def add_annotations(parsed: ParsedPod, annotations: Mapping[str, str] | None) -> list[Operation]:
    """Return the operations that add the mark of a gang by its owner, and what claims ask for.

    Args:
        parsed: The pod.
        annotations: The pod's, after profiles; None where it has none.
    """
    wanted: dict[str, tuple[str, str]] = {}
    if parsed.owned and parsed.member:
        wanted = {key: (text, "mark gang") for key, text in parsed.owned.annotations.items()}
    if claims.lacks_claim(parsed.pod, parsed.request):
        wanted[CLAIMED_GPUS] = claims.claim_amounts(parsed.request), claims.RULE
    elif (brought := parsed.request.user_claims) and not is_annotated(parsed, annotations or {}):
        wanted[CLAIMED_GPUS] = brought.annotation, claims.RULE
    elif parsed.delegated and (annotations or {}).get(LEFT_TO_SCHEDULER) != parsed.delegated:
        wanted[LEFT_TO_SCHEDULER] = parsed.delegated, "left to kube-scheduler"
    return add_keys("/metadata/annotations", annotations, wanted)


def add_scheduling_gate(parsed: ParsedPod, policy: PolicySnapshot) -> list[Operation]:
    """Return the operations that make a pod wait for the planner or for our scheduler.

    Members of a gang wait behind our scheduling gate, and so does a pod that requires links, or
    whose GPUs NVIDIA's plugin may choose: the scheduler does not ask our extender about it. So does
    a pod whose claim is to be created; the default scheduler allocates it. In mode `gates` all pods
    do whose GPUs Linkwise chooses, also those of a DaemonSet: each is a gang of one. In mode
    `scheduler` other pods get our scheduler's name.
    """
    if not (parsed.member or parsed.request.places):
        return []
    spec, placement = parsed.pod.spec, policy.policy.placement
    mode = placement.mode
    operations: list[Operation] = []
    by_claim = parsed.request.by_claim
    must_wait = parsed.member or parsed.request.by_count or by_claim or mode == "gates"
    if must_wait or link_alone(parsed.pod, parsed.request) is Link.NVLINK:
        if not spec.is_gated:
            rule = "gate gang" if parsed.member else "gate single pod"
            gate = append("/spec/schedulingGates", spec.scheduling_gates, {"name": GANG}, rule)
            operations.append(gate)
        name = spec.priority_class_name
        if name and (substitute := policy.policy.gangs.non_preempting_classes.get(name)):
            operations += _set_priority_class(spec, substitute)
    if mode == "scheduler" and not by_claim and spec.scheduler_name in {"", DEFAULT_SCHEDULER}:
        operations.append(add("/spec/schedulerName", placement.scheduler_name, "scheduler"))
    return operations


def _set_priority_class(spec: NewPodSpec, name: str) -> list[Operation]:
    """Return the operations that replace the priority class of a pod.

    The API server resolves priority and preemption policy from the class before and after mutating
    webhooks, and refuses other values. So both are removed here, and it sets them again.
    """
    rule = "preemption never"
    operations = [add("/spec/priorityClassName", name, rule)]
    if spec.priority is not None:
        operations.append(remove("/spec/priority", rule))
    if spec.preemption_policy is not None:
        operations.append(remove("/spec/preemptionPolicy", rule))
    return operations


def set_variables(parsed: ParsedPod, policy: PolicySnapshot) -> PatchSet:
    """Return the operations on variables and mounts of GPUs, and their findings."""
    pod, request = parsed.pod, parsed.request
    if request.family is not None:
        changes = set_visible_devices(pod, request, policy.policy, replicas(parsed.shared))
    else:
        changes = hide_devices(pod) if parsed.mark else PatchSet()
    removed = remove_devices(pod.spec, request, policy.policy)
    if not removed.findings:
        return changes
    return PatchSet(changes.operations + removed.operations, changes.findings + removed.findings)
