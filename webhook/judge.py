"""Everything that is wrong with a pod, or doubtful, all at once."""

from collections.abc import Iterator, Mapping

from cluster.capacity import Capacity
from cluster.finding import Code, Finding, Severity
from cluster.request import Request
from policy.catalogue import check_class
from policy.snapshot import PolicySnapshot
from webhook.asked import Asked
from webhook.workload import Workload, gang_findings


def judge(
    asked: Asked, policy: PolicySnapshot, capacity: Capacity, workload: Workload | None
) -> Iterator[Finding]:
    """Yield what is wrong with what a pod asks for.

    Args:
        asked: The pod after profiles.
        policy: What administrators allow.
        capacity: What the cluster offers.
        workload: The object that makes the pod, where it is at hand.
    """
    yield from asked.findings
    rules = policy.policy
    yield from check_class(asked.pod.labels, asked.request, policy.catalogue, strict=rules.strict)
    if rules.capacity != "off":
        severity = Severity.ERROR if rules.capacity == "deny" else Severity.WARNING
        yield from _capacity_findings(asked.request, capacity, severity)
    if asked.member and asked.mark:
        yield from gang_findings(asked.pod, asked.mark, workload)


def namespace_findings(
    namespace: str, labels: Mapping[str, str] | None, policy: PolicySnapshot
) -> Iterator[Finding]:
    """Yield a warning when profiles could not be judged, since the namespace is not known."""
    if labels is None and any(selector.namespace for selector in policy.profiles.selectors):
        yield Finding(
            Code.NAMESPACE_UNKNOWN,
            Severity.WARNING,
            "metadata.namespace",
            namespace,
            f"the labels of namespace {namespace} are not known: no namespaceSelector matches",
            "add the Namespace to the manifests or to the cluster file",
        )


def _capacity_findings(
    request: Request, capacity: Capacity, severity: Severity
) -> Iterator[Finding]:
    excess = capacity.excess(request)
    if excess is None:
        return
    ask = request.asks[0] if request.asks else None
    yield Finding(
        Code.CAPACITY,
        severity,
        ask.field if ask else "spec.containers",
        (ask.memory or ask.gpus) if ask else None,
        f"{excess.asked} is more than any node has: {excess.offered}",
        "ask for less, or add a node that has as much",
    )
