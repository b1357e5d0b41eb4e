"""Validate a pod: return all errors and warnings together."""

from linkwise.admission.decide.exclusive_cpus import cpu_findings
from linkwise.admission.patch.gpu_injection import injection_findings
from linkwise.admission.read.parsed_pod import ParsedPod
from linkwise.cluster.finding import Code, Finding, Severity
from linkwise.cluster.gang import Mark
from linkwise.cluster.keys import DEFAULT_SCHEDULER, DRIVER_VERSION, MODEL_SERIES, NVIDIA_GPU
from linkwise.cluster.nodes.capacity import Capacity, Excess
from linkwise.cluster.objects.node_terms import node_terms_finding
from linkwise.cluster.objects.pod import NewPod
from linkwise.cluster.objects.selector import names_label
from linkwise.cluster.requests.claimed import claim_name
from linkwise.cluster.requests.container_request import container_path, indexed_containers
from linkwise.cluster.requests.misspelled import misspelled
from linkwise.cluster.requests.other_systems import gpus_of_others
from linkwise.cluster.requests.request import Family, Request
from linkwise.policy.catalogue import CLASS_LABELS, check_class
from linkwise.policy.document import Policy
from linkwise.policy.snapshot import PolicySnapshot
from linkwise.workloads.gang_owner import GangOwner, gang_findings, pod_by_pod_findings


def validate_pod(
    parsed: ParsedPod, policy: PolicySnapshot, capacity: Capacity, workload: GangOwner | None
) -> list[Finding]:
    """Return the findings about a pod.

    Args:
        parsed: The pod after profiles.
        policy: Policy and catalogue of GPU models.
        capacity: Maximum capacity of the nodes.
        workload: The object that creates the pod; None where it is not known.
    """
    rules, request = policy.policy, parsed.request
    places = request.places
    findings = [*parsed.findings, *misspelled(parsed.pod.spec)]
    if _names_model(parsed.pod):
        labels, catalogue = parsed.pod.labels, policy.catalogue
        findings += check_class(labels, parsed.pod.spec, request, catalogue, strict=rules.strict)
    if rules.capacity != "off" and (excess := capacity.excess(request)):
        severity = Severity.ERROR if rules.capacity == "deny" else Severity.WARNING
        fix = capacity.suggested_change(request) or "ask for less, or add a node that has as much"
        findings.append(_capacity_finding(request, excess, severity, fix))
    if places:
        findings += _privileged_findings(parsed.pod)
        findings += cpu_findings(parsed.pod.spec, capacity)
        if (finding := node_terms_finding(parsed.pod.spec)) is not None:
            findings.append(finding)
        findings += _applied_again(parsed.pod, workload)
    findings += injection_findings(parsed, rules)
    if places and rules.placement.mode == "scheduler":
        findings += _scheduler_findings(parsed, rules.placement.scheduler_name)
    if parsed.member and parsed.mark:
        findings += gang_findings(parsed.pod, parsed.mark, workload)
    if parsed.mark is None and (places or _is_single(parsed, rules)):
        findings += pod_by_pod_findings(parsed.pod, workload, rules.gangs.kinds)
    if (places or parsed.mark or parsed.delegated) and _has_other_claims(parsed):
        findings.append(_claims_finding(parsed, places=places))
    others = gpus_of_others(parsed.pod.spec, request.family)
    if parsed.mark and request.family is Family.NVIDIA and others is None:
        findings += _unplanned_gang(parsed.pod, parsed.mark, request, rules)
    return findings


def _is_single(parsed: ParsedPod, rules: Policy) -> bool:
    """Return whether NVIDIA's plugin chooses the GPUs of a pod only since it is in no gang."""
    spec, request = parsed.pod.spec, parsed.request
    is_free = spec.scheduler_name in {"", DEFAULT_SCHEDULER} and not spec.node_name
    if not is_free or request.resource != NVIDIA_GPU or rules.placement.nvidia == "off":
        return False
    return gpus_of_others(spec, request.family) is None


def _has_other_claims(parsed: ParsedPod) -> bool:
    """Return whether a pod names claims that Linkwise neither makes nor allocates."""
    spec, brought = parsed.pod.spec, parsed.request.user_claims
    ours = claim_name(spec)
    return any(
        claim.name not in brought.references
        if brought
        else ours != (claim.resource_claim_name or "")
        for claim in spec.resource_claims or ()
    )


def _claims_finding(parsed: ParsedPod, *, places: bool) -> Finding:
    """Return a warning for a pod with resource claims, which Linkwise does not read (DRA)."""
    if places:
        message = (
            "the pod asks for GPUs that Linkwise chooses, and claims devices, too: the node is"
            " chosen without regard to the claims"
        )
        resource = parsed.request.resource
        fix = f"claim no GPUs beside {resource}, and only devices that every suitable node has"
    elif parsed.mark:
        message = (
            f"Linkwise does not place gang {parsed.mark.name} as a whole: the pod gets its devices "
            f"by resource claims (DRA){f'; {parsed.delegated}' if parsed.delegated else ''}"
        )
        fix = f"ask for {NVIDIA_GPU} instead of the claims, or remove the mark"
    else:
        message = f"Linkwise leaves the claims of the pod to kube-scheduler: {parsed.delegated}"
        fix = f"ask for {NVIDIA_GPU} instead, since nodes of Linkwise have no GPU for such claims"
    return Finding(Code.CLAIMS, Severity.WARNING, "spec.resourceClaims", None, message, fix)


def _applied_again(pod: NewPod, workload: GangOwner | None) -> list[Finding]:
    """Return a warning for a pod without an owner that states a field which the scorer takes.

    Whoever applies a template of an owner applies no pod.
    """
    if workload is None or workload.kind != "Pod" or not pod.spec.required_terms:
        return []
    warning = Finding(
        Code.APPLIED_AGAIN,
        Severity.WARNING,
        "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution",
        None,
        "a server-side apply of this pod conflicts with the scorer once it has its node, which the "
        "scorer writes here",
        "use spec.nodeSelector instead, or apply it with --force-conflicts",
    )
    return [warning]


def _privileged_findings(pod: NewPod) -> list[Finding]:
    """Return a warning for each privileged container, since it sees the GPUs of other pods."""
    return [
        Finding(
            Code.PRIVILEGED,
            Severity.WARNING,
            f"{container_path(init, index)}.securityContext.privileged",
            "true",
            f"container {container.name} is privileged: it sees every GPU of its node, "
            "also those of other pods",
            "remove privileged, or add the capabilities that the container needs",
        )
        for init, index, container in indexed_containers(pod.spec)
        if container.security_context and container.security_context.privileged
    ]


def _names_model(pod: NewPod) -> bool:
    """Return whether a pod names an ACS class, a GPU model or a driver."""
    spec, labels = pod.spec, pod.metadata.labels
    if labels and not labels.keys().isdisjoint(CLASS_LABELS):
        return True
    return names_label(spec, MODEL_SERIES) or names_label(spec, DRIVER_VERSION)


def _unplanned_gang(pod: NewPod, mark: Mark, request: Request, policy: Policy) -> list[Finding]:
    """Return a warning for a gang whose GPUs NVIDIA's plugin chooses."""
    if pod.spec.scheduler_name not in {"", DEFAULT_SCHEDULER}:
        return []  # The mark may belong to that scheduler.
    resource = request.resource
    if policy.placement.nvidia == "off" and resource == NVIDIA_GPU:
        fix = "set placement.nvidia: auto in the policy, or remove the mark"
    elif pod.spec.node_name:
        fix = "remove nodeName, or the mark"
    else:
        fix = f"ask for {NVIDIA_GPU}, or remove the mark"
    warning = Finding(
        Code.GANG_COUNTED,
        Severity.WARNING,
        mark.source,
        mark.name,
        f"Linkwise does not place gang {mark.name} as a whole: NVIDIA's plugin chooses the GPUs of "
        f"{resource}, and the scheduler places its pods one by one",
        fix,
    )
    return [warning]


def _scheduler_findings(parsed: ParsedPod, ours: str) -> list[Finding]:
    """Return an error for a pod that another scheduler would bind without GPUs.

    The planner chooses the GPUs of a gated pod before any scheduler handles it.
    """
    named = parsed.pod.spec.scheduler_name
    if named in {"", DEFAULT_SCHEDULER, ours} or parsed.member or parsed.pod.spec.is_gated:
        return []
    error = Finding(
        Code.SCHEDULER,
        Severity.ERROR,
        "spec.schedulerName",
        named,
        f"scheduler {named} would bind the pod without GPUs, which only scheduler {ours} chooses",
        f"leave schedulerName out, or write {ours}",
    )
    return [error]


def namespace_findings(namespace: str, policy: PolicySnapshot) -> list[Finding]:
    """Return a warning where profiles select namespaces, and this one is not known."""
    if not any(selector.namespace for selector in policy.profiles.selectors):
        return []
    warning = Finding(
        Code.NAMESPACE_UNKNOWN,
        Severity.WARNING,
        "metadata.namespace",
        namespace,
        f"the labels of namespace {namespace} are not known: no namespaceSelector matches",
        "add the Namespace to the manifests or to the cluster file",
    )
    return [warning]


def _capacity_finding(request: Request, excess: Excess, severity: Severity, fix: str) -> Finding:
    container = request.containers[0] if request.containers else None
    return Finding(
        Code.CAPACITY,
        severity,
        container.field if container else "spec.containers",
        (container.memory or container.gpus) if container else None,
        f"{excess.requested} is more than any node has: {excess.offered}",
        fix,
    )
