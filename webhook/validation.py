"""Everything that is wrong with a pod, or doubtful, all at once."""

from collections.abc import Iterator

from cluster.capacity import Capacity, Excess
from cluster.finding import Code, Finding, Severity
from cluster.gang import Mark
from cluster.gang_owner import Workload, gang_findings
from cluster.keys import DEFAULT_SCHEDULER, DRIVER_VERSION, GPU_WHOLE, MODEL_SERIES
from cluster.misspelled import misspelled
from cluster.mode import Mode
from cluster.node_terms import node_terms_finding
from cluster.pod import NewPod
from cluster.request import Family, Request
from cluster.selector import names_label
from policy.catalogue import CLASS_LABELS, check_class
from policy.snapshot import PolicySnapshot
from webhook.parsed_pod import ParsedPod


def validate_pod(
    asked: ParsedPod, policy: PolicySnapshot, capacity: Capacity, workload: Workload | None
) -> list[Finding]:
    """Return what is wrong with what a pod asks for.

    Args:
        asked: The pod after profiles.
        policy: What administrators allow.
        capacity: What the cluster offers.
        workload: The object that makes the pod, where it is at hand.
    """
    rules, request = policy.policy, asked.request
    found = [*asked.findings, *misspelled(asked.pod.spec)]
    if _chooses_model(asked.pod):
        labels, catalogue = asked.pod.labels, policy.catalogue
        found += check_class(labels, asked.pod.spec, request, catalogue, strict=rules.strict)
    if rules.capacity != "off" and (excess := capacity.excess(request)):
        severity = Severity.ERROR if rules.capacity == "deny" else Severity.WARNING
        fix = capacity.suggested_change(request) or "ask for less, or add a node that has as much"
        found.append(_capacity_finding(request, excess, severity, fix))
    if request.places:
        found += _privileged_findings(asked.pod)
        if (finding := node_terms_finding(asked.pod.spec)) is not None:
            found.append(finding)
    if request.places and rules.placement.mode == "scheduler":
        found += _scheduler_findings(asked, rules.placement.scheduler_name)
    if asked.member and asked.mark:
        found += gang_findings(asked.pod, asked.mark, workload)
    if asked.mark and request.family is Family.NVIDIA:
        found += _counted_gang(asked.pod, asked.mark, request)
    return found


def _privileged_findings(pod: NewPod) -> Iterator[Finding]:
    """Yield a warning for each privileged container, since it sees the GPUs of other pods."""
    lists = ("containers", pod.spec.containers), ("initContainers", pod.spec.init_containers or ())
    for name, containers in lists:
        for i, container in enumerate(containers):
            if container.security_context and container.security_context.privileged:
                yield Finding(
                    Code.PRIVILEGED,
                    Severity.WARNING,
                    f"spec.{name}[{i}].securityContext.privileged",
                    "true",
                    f"container {container.name} is privileged: it sees every GPU of its node, "
                    "also those of other pods",
                    "remove privileged, or add the capabilities that the container needs",
                )


def _chooses_model(pod: NewPod) -> bool:
    """Tell whether a pod says anything about an ACS class, a GPU model or a driver."""
    spec, labels = pod.spec, pod.metadata.labels
    if labels and not labels.keys().isdisjoint(CLASS_LABELS):
        return True
    # Few pods require anything of their nodes, and this is on the path of each admission.
    return bool(spec.node_selector or spec.affinity) and (
        names_label(spec, MODEL_SERIES) or names_label(spec, DRIVER_VERSION)
    )


def _counted_gang(pod: NewPod, mark: Mark, request: Request) -> list[Finding]:
    """Return a warning for a gang that is not placed as a whole."""
    if pod.spec.scheduler_name not in {"", DEFAULT_SCHEDULER}:
        return []  # The mark may be that scheduler's.
    resource = request.counted
    warning = Finding(
        Code.GANG_COUNTED,
        Severity.WARNING,
        mark.source,
        mark.name,
        f"Linkwise does not place gang {mark.name} as a whole: NVIDIA's plugin chooses the GPUs of "
        f"{resource}, and the scheduler takes its pods one by one",
        f"ask for {GPU_WHOLE} on nodes of mode {Mode.TOPOLOGY}, or remove the mark",
    )
    return [warning]


def _scheduler_findings(asked: ParsedPod, ours: str) -> list[Finding]:
    """Return an error for a pod that another scheduler than ours would bind as it is.

    Where a pod waits for the planner, its GPUs are chosen before any scheduler looks at it.
    """
    named = asked.pod.spec.scheduler_name
    if named in {"", DEFAULT_SCHEDULER, ours} or asked.member or asked.pod.spec.is_gated:
        return []
    error = Finding(
        Code.SCHEDULER,
        Severity.ERROR,
        "spec.schedulerName",
        named,
        f"a pod of {named} passes by scheduler {ours}, so nobody would choose its GPUs",
        f"leave schedulerName out, or write {ours}",
    )
    return [error]


def namespace_findings(namespace: str, policy: PolicySnapshot) -> list[Finding]:
    """Return a warning when profiles could not be judged, since the namespace is not known."""
    if not any(one.namespace for one in policy.profiles.selectors):
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
    ask = request.asks[0] if request.asks else None
    return Finding(
        Code.CAPACITY,
        severity,
        ask.field if ask else "spec.containers",
        (ask.memory or ask.gpus) if ask else None,
        f"{excess.requested} is more than any node has: {excess.offered}",
        fix,
    )
