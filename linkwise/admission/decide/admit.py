"""Admission of one pod: scope, profiles, request, validation, patch.

A pure function of the pod, the policy and the capacity of the cluster. Read from the top.
"""

from collections.abc import Mapping

import msgspec

from linkwise.admission.decide.messages import admission_warnings
from linkwise.admission.decide.outcome import Outcome, Verdict
from linkwise.admission.decide.validation import namespace_findings, validate_pod
from linkwise.admission.operations import Operation, join_rules
from linkwise.admission.patch.affinity import add_requirements
from linkwise.admission.patch.gpu_injection import set_runtime_class
from linkwise.admission.patch.mutation import (
    add_annotations,
    add_profiles,
    add_scheduling_gate,
    drop_record,
    is_annotated,
    set_variables,
    without_record,
)
from linkwise.admission.patch.requirement import node_requirements
from linkwise.admission.patch.unrequested_devices import chooses_gpus
from linkwise.admission.read.claims import NO_CLAIM, add_claim, lacks_claim
from linkwise.admission.read.parsed_pod import claims_that_place, parse_pod
from linkwise.admission.read.work_limits import patch_finding, size_finding
from linkwise.cluster.finding import Code, Finding, Severity
from linkwise.cluster.gang import gang_mark
from linkwise.cluster.keys import ACS_PREFIX, GPU_COUNT, RESOURCES
from linkwise.cluster.nodes.capacity import Capacity
from linkwise.cluster.objects.container import NewContainer
from linkwise.cluster.objects.pod import NewPod
from linkwise.cluster.requests.claimed import claim_name, reference_findings
from linkwise.cluster.requests.container_request import all_containers
from linkwise.cluster.requests.misspelled import misspelled_names
from linkwise.cluster.requests.user_claims.claim_spec import Asked
from linkwise.cluster.requests.user_claims.pod_claims import ClaimSource
from linkwise.policy.profile import ProfileResult
from linkwise.policy.snapshot import PolicySnapshot
from linkwise.workloads.gang_owner import GangOwner

_RESOURCES = frozenset(RESOURCES)
_NOTHING_ASKED: Mapping[ClaimSource, Asked] = {}
_FIELD_MARK = " - at `$.request.object."
"""Separates the reason from the field in messages of the decoder."""


def admit(  # noqa: PLR0913 - the pod, and each thing that decides about it.
    pod: NewPod,
    *,
    namespace: str,
    namespace_labels: Mapping[str, str] | None,
    policy: PolicySnapshot,
    capacity: Capacity,
    workload: GangOwner | None = None,
    new_claim: str = NO_CLAIM,
    asked: Mapping[ClaimSource, Asked] = _NOTHING_ASKED,
) -> Outcome:
    """Return the admission outcome for a pod that is being created.

    Args:
        pod: The pod as received: decoded and defaulted, not validated.
        namespace: Its namespace.
        namespace_labels: Labels of that namespace; None where they are not known.
        policy: Policy and profiles.
        capacity: Maximum capacity of the nodes.
        workload: The object that creates the pod; None where it is not known.
        new_claim: Name for the claim of this pod, if it gets its GPUs by one; random where the pod
            is created.
        asked: What the ResourceClaimTemplates and ResourceClaims of the pod ask for.

    Cost: about 25 µs for a member of a gang, a quarter of it for the request.
    """
    labels, annotations = pod.metadata.labels or {}, pod.metadata.annotations or {}
    asks_by_claim = any(each is not None for each in asked.values())
    if not (asks_by_claim or _is_in_scope(pod, policy)):
        return Outcome(Verdict.SKIPPED, labels=labels, annotations=annotations)
    if too_large := size_finding(pod.spec):
        return _denied(too_large)
    profiles = policy.profiles.apply(labels, annotations, namespace_labels)
    added = profiles.added_labels or profiles.added_annotations
    profiled = _with_profiles(pod, profiles) if added else pod
    brought = claims_that_place(profiled, asked, policy, capacity)
    parsed = parse_pod(profiled, policy, capacity, brought)
    has_claim = claim_name(pod.spec) is not None or is_annotated(parsed, annotations)
    removal, removal_warnings = drop_record(annotations, has_claim=has_claim)
    variables = set_variables(parsed, policy)
    if too_large := patch_finding(len(removal) + len(variables.operations)):
        return _denied(too_large)
    findings = (
        *(namespace_findings(namespace, policy) if namespace_labels is None else ()),
        *validate_pod(parsed, policy, capacity, workload),
        *variables.findings,
        *removal_warnings,
    )
    denied = bool(findings) and any(finding.severity is Severity.ERROR for finding in findings)
    requirements = node_requirements(profiles.labels, parsed.request, policy, capacity)
    patch = (
        ()
        if denied
        else (
            *removal,
            *(add_profiles(pod, profiles) if added else ()),
            *add_annotations(parsed, _annotations_after(pod, profiles)),
            *parsed.renaming,
            *(
                add_claim(parsed.pod, parsed.request, new_claim)
                if lacks_claim(parsed.pod, parsed.request)
                else ()
            ),
            *add_requirements(pod.spec, requirements),
            *add_scheduling_gate(parsed, policy),
            *set_runtime_class(parsed, policy.policy),
            *variables.operations,
        )
    )
    if too_large := patch_finding(len(patch)):
        return _denied(too_large)
    return Outcome(
        Verdict.DENIED if denied else Verdict.ALLOWED,
        findings,
        admission_warnings(findings) if findings else (),
        profiles.trace,
        patch,
        parsed.request,
        profiles.labels,
        without_record(profiles.annotations) if removal or added else profiles.annotations,
        _audit_annotations(policy, findings, patch),
    )


def deny_unreadable(error: str) -> Outcome:
    """Return the outcome for a pod that cannot be decoded: it is denied.

    Args:
        error: Message of the decoder, with the field.
    """
    reason, _, field = error.partition(_FIELD_MARK)
    finding = Finding(
        Code.UNREADABLE,
        Severity.ERROR,
        field.rstrip("`") or "metadata",
        None,
        f"the pod cannot be read: {reason}",
        "write that field as Kubernetes defines it, and with no more entries than a pod can need",
    )
    return _denied(finding)


def deny_for_now(reason: str) -> Outcome:
    """Return the outcome for a pod about which something is not known yet: its creator tries again.

    Allowed, it would never be placed by Linkwise.

    Args:
        reason: What is not known.
    """
    fix = "create the pod again; controllers do so"
    return _denied(Finding(Code.CLAIMS, Severity.ERROR, "spec.resourceClaims", None, reason, fix))


def _denied(finding: Finding) -> Outcome:
    return Outcome(Verdict.DENIED, (finding,), audit={"findings": finding.code.value})


def _is_in_scope(pod: NewPod, policy: PolicySnapshot) -> bool:
    """Return whether a pod concerns GPUs, gangs or classes, or the policy includes all pods."""
    spec, rules = pod.spec, policy.policy
    return (
        any(map(_names_gpu, all_containers(spec)))
        or any(reference_findings(spec))
        or claim_name(spec) is not None
        or bool(misspelled_names(spec))
        or rules.profiles_all
        or (rules.environment != "allow" and chooses_gpus(spec))
        or any(label.startswith(ACS_PREFIX) or label == GPU_COUNT for label in pod.labels)
        or gang_mark(pod)[0] is not None
    )


def _names_gpu(container: NewContainer) -> bool:
    return not (
        _RESOURCES.isdisjoint(container.limits) and _RESOURCES.isdisjoint(container.requests)
    )


def _with_profiles(pod: NewPod, profiles: ProfileResult) -> NewPod:
    metadata = msgspec.structs.replace(
        pod.metadata, labels=profiles.labels, annotations=profiles.annotations
    )
    return msgspec.structs.replace(pod, metadata=metadata)


def _annotations_after(pod: NewPod, profiles: ProfileResult) -> Mapping[str, str] | None:
    """Return the annotations of a pod once those of profiles are added; None if it has none."""
    if pod.metadata.annotations is not None:
        return pod.metadata.annotations
    return without_record(profiles.added_annotations) or None


def _audit_annotations(
    policy: PolicySnapshot, findings: tuple[Finding, ...], patch: tuple[Operation, ...]
) -> dict[str, str]:
    """Return the annotations of this decision in the audit log."""
    audit = {"policy": policy.name}
    if findings:
        audit["findings"] = ",".join(dict.fromkeys(finding.code.value for finding in findings))
    if patch:
        audit["rules"] = join_rules(tuple([operation.rule for operation in patch]))
    return audit
