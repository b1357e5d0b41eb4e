"""Everything that is wrong with a pod, or doubtful, all at once."""

from cluster.capacity import Capacity, Excess
from cluster.finding import Code, Finding, Severity
from cluster.keys import DEFAULT_SCHEDULER
from cluster.request import Request
from policy.catalogue import CLASS_LABELS, check_class
from policy.snapshot import PolicySnapshot
from webhook.asked import Asked
from webhook.workload import Workload, gang_findings


def judge(
    asked: Asked, policy: PolicySnapshot, capacity: Capacity, workload: Workload | None
) -> list[Finding]:
    """Return what is wrong with what a pod asks for.

    Args:
        asked: The pod after profiles.
        policy: What administrators allow.
        capacity: What the cluster offers.
        workload: The object that makes the pod, where it is at hand.
    """
    rules, request = policy.policy, asked.request
    found = list(asked.findings)
    labels = asked.pod.metadata.labels
    if labels and not labels.keys().isdisjoint(CLASS_LABELS):
        found += check_class(labels, request, policy.catalogue, strict=rules.strict)
    if rules.capacity != "off" and (excess := capacity.excess(request)):
        severity = Severity.ERROR if rules.capacity == "deny" else Severity.WARNING
        fix = capacity.relabelling(request) or "ask for less, or add a node that has as much"
        found.append(_capacity_finding(request, excess, severity, fix))
    if request.places and rules.placement.mode == "scheduler":
        found += _scheduler_findings(asked, rules.placement.scheduler_name)
    if asked.member and asked.mark:
        found += gang_findings(asked.pod, asked.mark, workload)
    return found


def _scheduler_findings(asked: Asked, ours: str) -> list[Finding]:
    """Return an error for a pod that another scheduler than ours would bind as it is.

    Where a pod waits for the planner, its GPUs are chosen before any scheduler looks at it.
    """
    named = asked.pod.spec.scheduler_name
    if named in {"", DEFAULT_SCHEDULER, ours} or asked.member or asked.gated:
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
        f"{excess.asked} is more than any node has: {excess.offered}",
        fix,
    )
