"""What a pod becomes when it is created: scope, profiles, request, steps, answer.

A pure function of the pod, the policy and what the cluster offers. Read from the top.
"""

from collections.abc import Mapping, Sequence

import msgspec

from cluster.capacity import Capacity
from cluster.finding import Code, Finding, Severity
from cluster.gang import gang_mark
from cluster.gang_owner import Workload
from cluster.keys import ACS_PREFIX, RESOURCES
from cluster.misspelled import near
from cluster.pod import NewContainer, NewPod
from policy.profile import ProfileResult
from policy.snapshot import PolicySnapshot
from webhook.affinity import add_requirements
from webhook.messages import admission_warnings
from webhook.mutation import (
    add_profiles,
    add_scheduling_gate,
    drop_record,
    set_variables,
    without_record,
)
from webhook.outcome import Outcome, Verdict
from webhook.parsed_pod import parse_pod
from webhook.patch import Operation, join_rules
from webhook.requirement import node_requirements
from webhook.unrequested_devices import chooses_gpus
from webhook.validation import namespace_findings, validate_pod

# In Python 3.11 a member of an enum takes ten times as long to look up as a name.
_ALLOWED, _DENIED = Verdict.ALLOWED, Verdict.DENIED
_RESOURCES = frozenset(RESOURCES)
_AT = " - at `$.request.object."
"""Stands between the reason and the field in the messages of a decoder."""


def admit(
    pod: NewPod,
    *,
    namespace: str,
    namespace_labels: Mapping[str, str] | None,
    policy: PolicySnapshot,
    capacity: Capacity,
    workload: Workload | None = None,
) -> Outcome:
    """Return what admission makes of a pod that is being created.

    Args:
        pod: The pod as received: decoded and defaulted, not validated.
        namespace: Where it goes.
        namespace_labels: The labels of that namespace; None when they are not known.
        policy: What administrators decided.
        capacity: What the cluster offers.
        workload: The object that makes the pod, where it is at hand.

    Cost: about 25 µs for a gang's worker, a quarter of it to read the request.
    """
    labels, annotations = pod.metadata.labels or {}, pod.metadata.annotations or {}
    if not _is_ours(pod, policy):
        return Outcome(Verdict.SKIPPED, labels=labels, annotations=annotations)
    profiles = policy.profiles.apply(labels, annotations, namespace_labels)
    added = profiles.added_labels or profiles.added_annotations
    asked = parse_pod(_with_profiles(pod, profiles) if added else pod, policy, capacity)
    removal, removed = drop_record(annotations)
    variables = set_variables(asked, policy)
    findings = (
        *(namespace_findings(namespace, policy) if namespace_labels is None else ()),
        *validate_pod(asked, policy, capacity, workload),
        *variables.findings,
        *removed,
    )
    denied = bool(findings) and any(finding.severity is Severity.ERROR for finding in findings)
    requirements = node_requirements(profiles.labels, asked.request, policy)
    steps = (
        ()
        if denied
        else (
            *removal,
            *(add_profiles(pod, profiles) if added else ()),
            *asked.renaming,
            *add_requirements(pod.spec, requirements),
            *add_scheduling_gate(asked, policy),
            *variables.operations,
        )
    )
    return Outcome(
        _DENIED if denied else _ALLOWED,
        findings,
        admission_warnings(findings) if findings else (),
        profiles.trace,
        steps,
        asked.request,
        profiles.labels,
        without_record(profiles.annotations) if removal or added else profiles.annotations,
        _audit(policy, findings, steps),
    )


def deny_unreadable(why: str) -> Outcome:
    """Return the outcome for a pod that cannot be read: it is denied.

    Args:
        why: What the decoder says, with the place where it stopped.
    """
    reason, _, field = why.partition(_AT)
    finding = Finding(
        Code.UNREADABLE,
        Severity.ERROR,
        field.rstrip("`") or "metadata",
        None,
        f"the pod cannot be judged: {reason}",
        "write that field as Kubernetes defines it, and with no more entries than a pod can need",
    )
    return Outcome(_DENIED, (finding,), audit={"findings": finding.code.value})


def _is_ours(pod: NewPod, policy: PolicySnapshot) -> bool:
    """Tell whether a pod has anything to do with GPUs, or the policy is about all pods."""
    spec, rules = pod.spec, policy.policy
    return (
        _name_gpus(spec.containers)
        or _name_gpus(spec.init_containers or ())
        or rules.profiles_all
        or (rules.environment != "allow" and chooses_gpus(spec))
        or any(label.startswith(ACS_PREFIX) for label in pod.labels)
        or gang_mark(pod)[0] is not None
    )


def _name_gpus(containers: Sequence[NewContainer]) -> bool:
    for container in containers:
        resources = container.resources
        if resources and any(
            name in _RESOURCES or near(name) is not None
            for amounts in (resources.limits, resources.requests)
            for name in amounts or ()
        ):
            return True
    return False


def _with_profiles(pod: NewPod, profiles: ProfileResult) -> NewPod:
    metadata = msgspec.structs.replace(
        pod.metadata, labels=profiles.labels, annotations=profiles.annotations
    )
    return msgspec.structs.replace(pod, metadata=metadata)


def _audit(
    policy: PolicySnapshot, findings: tuple[Finding, ...], steps: tuple[Operation, ...]
) -> dict[str, str]:
    """Return what the audit log tells of this decision."""
    audit = {"policy": policy.name}
    if findings:
        audit["findings"] = ",".join(dict.fromkeys(finding.code.value for finding in findings))
    if steps:
        audit["rules"] = join_rules(tuple([step.rule for step in steps]))
    return audit
