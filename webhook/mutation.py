"""What the scheduler and the planner need of a pod, as steps: labels, nodes, gate, environment."""

from collections.abc import Iterable, Mapping
from functools import cache

from cluster.finding import Code, Finding, Severity
from cluster.gang import Link, link_alone
from cluster.keys import DEFAULT_SCHEDULER, GANG, RECORD, VISIBLE_DEVICES_OF
from cluster.pod import NewPod, NewPodSpec
from cluster.pointer import escape
from policy.profile import ProfileResult
from policy.snapshot import PolicySnapshot
from webhook.device_variables import PatchSet, hide_devices, set_visible_devices
from webhook.parsed_pod import ParsedPod
from webhook.patch import Operation, add, add_keys, append, pre_encoded, remove
from webhook.sharing import replicas
from webhook.unrequested_devices import remove_variables


def record_keys(annotations: Iterable[str]) -> list[str]:
    """Return those annotations that are parts of an allocation's record."""
    if RECORD.isdisjoint(annotations) and VISIBLE_DEVICES_OF not in "\n".join(annotations):
        return []  # Nearly every pod; two looks at all keys are faster than one at each.
    return [key for key in annotations if key in RECORD or key.startswith(VISIBLE_DEVICES_OF)]


def without_record(annotations: dict[str, str]) -> dict[str, str]:
    """Return the annotations that are no part of an allocation's record."""
    record = record_keys(annotations)
    if not record:
        return annotations
    return {key: value for key, value in annotations.items() if key not in record}


def drop_record(annotations: Mapping[str, str]) -> tuple[list[Operation], list[Finding]]:
    """Return the steps that remove what only the scorer may say, and a warning for each."""
    keys = record_keys(annotations)
    if not keys:
        return [], []
    steps = [remove(f"/metadata/annotations/{escape(key)}", "record removed") for key in keys]
    return steps, [_removed(key, annotations[key]) for key in keys]


def _removed(key: str, value: str) -> Finding:
    return Finding(
        Code.RECORD_REMOVED,
        Severity.WARNING,
        f"metadata.annotations[{key}]",
        value,
        f"annotation {key} is removed: the scorer writes it when it chooses the GPUs",
        "remove the annotation",
    )


def add_profiles(pod: NewPod, result: ProfileResult) -> list[Operation]:
    """Return the steps that add what profiles decided."""
    rules = {path: f"profile {one.name}" for one in result.trace for path in one.added}
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


def add_scheduling_gate(asked: ParsedPod, policy: PolicySnapshot) -> list[Operation]:
    """Return the steps that make a pod wait for whoever chooses its GPUs.

    A gang's members wait for the planner, and so does a pod that insists on links. Where no
    scheduler of ours runs, so do all pods whose GPUs Linkwise chooses, a DaemonSet's too: they are
    gangs of one.
    """
    if not (asked.member or asked.request.places):
        return []
    spec, placement = asked.pod.spec, policy.policy.placement
    mode = placement.mode
    steps: list[Operation] = []
    is_linked = link_alone(asked.pod, asked.request) is Link.NVLINK
    if asked.member or mode == "gates" or is_linked:
        if not asked.pod.spec.is_gated:
            steps.append(_gate(spec.scheduling_gates is None, asked.member))
        theirs = spec.priority_class_name
        if theirs and (ours := policy.policy.gangs.non_preempting_classes.get(theirs)):
            steps += _classify(spec, ours)
    if mode == "scheduler" and spec.scheduler_name in {"", DEFAULT_SCHEDULER}:
        steps.append(add("/spec/schedulerName", placement.scheduler_name, "scheduler"))
    return steps


@cache
def _gate(first: bool, member: bool) -> Operation:
    rule = "gate gang" if member else "gate single pod"
    return pre_encoded(append("/spec/schedulingGates", None if first else [], {"name": GANG}, rule))


def _classify(spec: NewPodSpec, name: str) -> list[Operation]:
    """Return the steps that give a pod another priority class.

    The API server takes priority and preemption policy from the class, before us and once more
    after us, and refuses a pod that says anything else: they go, so that it tells them anew.
    """
    rule = "preemption never"
    steps = [add("/spec/priorityClassName", name, rule)]
    if spec.priority is not None:
        steps.append(remove("/spec/priority", rule))
    if spec.preemption_policy is not None:
        steps.append(remove("/spec/preemptionPolicy", rule))
    return steps


def set_variables(asked: ParsedPod, policy: PolicySnapshot) -> PatchSet:
    """Return the changes to environment variables of GPUs, and their findings."""
    pod, request = asked.pod, asked.request
    if request.family is not None:
        changes = set_visible_devices(pod, request, policy.policy, replicas(asked.shared))
    else:
        changes = hide_devices(pod) if asked.mark else PatchSet()
    taken = remove_variables(pod.spec, request, policy.policy)
    if not taken.findings:
        return changes
    return PatchSet(changes.operations + taken.operations, changes.findings + taken.findings)
