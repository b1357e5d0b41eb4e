"""The report about one pod template, as JSON: `check -o json` and the dry-run API."""

from jsonpatch import JsonPatch

from linkwise.admission.decide.outcome import Outcome, Verdict
from linkwise.admission.read.claims import NO_CLAIM
from linkwise.cluster.allocations.device_claim import ClaimOwner, claim_of
from linkwise.cluster.finding import Finding
from linkwise.cluster.objects.pod import Pod
from linkwise.cluster.requests.other_systems import gpus_of_others
from linkwise.cluster.requests.request import Request
from linkwise.manifest.template import PodTemplate
from linkwise.policy.selection import Trace


def patched(pod: dict[str, object], outcome: Outcome) -> object:
    """Return a pod as its admission leaves it."""
    return JsonPatch([operation.wire() for operation in outcome.patch]).apply(pod)


def pod_report(
    template: PodTemplate, pod: dict[str, object], typed: Pod, outcome: Outcome
) -> dict[str, object]:
    """Return the report about one template, as plain JSON.

    Args:
        template: The pod template.
        pod: One of its pods, as received.
        typed: The same pod, decoded.
        outcome: Admission outcome of the pod.
    """
    others = gpus_of_others(typed.spec, outcome.request.family, typed.annotations)
    return {
        "source": template.source,
        "kind": template.workload.kind,
        "name": template.workload.name,
        "namespace": template.namespace,
        "template": template.role,
        "replicas": template.replicas,
        "verdict": outcome.verdict.value,
        "findings": [finding_report(finding, template) for finding in outcome.findings],
        "profiles": [_trace(trace) for trace in outcome.profiles],
        "patch": [{**operation.wire(), "rule": operation.rule} for operation in outcome.patch],
        "patched": patched(pod, outcome),
        "request": _request(outcome.request),
        "warnings": list(outcome.warnings),
        "others": others,
        **_claim(template, outcome),
        "reason": _reason(others) if outcome.verdict is Verdict.SKIPPED else None,
    }


def _claim(template: PodTemplate, outcome: Outcome) -> dict[str, object]:
    """Return the claim by which the pod would get its GPUs; nothing where it gets none so."""
    request = outcome.request
    if not request.by_claim or request.user_claims or outcome.verdict is not Verdict.ALLOWED:
        return {}
    owner = ClaimOwner(template.namespace, template.workload.name, uid="")
    claim = claim_of(owner, NO_CLAIM, request, shares=None)
    metadata = {"name": claim.name, "namespace": owner.namespace}
    return {"claim": {**claim.body(), "metadata": metadata}}


def _reason(others: str | None) -> str:
    """Return why a pod is skipped."""
    if others:
        return f"asks for {others}: Linkwise does not place it"
    return "asks for no GPU resource, and has no label of a compute class and no gang"


def finding_report(finding: Finding, template: PodTemplate) -> dict[str, object]:
    """Return a finding about one template, as plain JSON."""
    return {
        "code": finding.code.value,
        "severity": finding.severity.value,
        "field": finding.field,
        "value": finding.value,
        "message": finding.message,
        "fix": finding.fix,
        "source": template.value.at(finding.field).source,
    }


def _trace(trace: Trace) -> dict[str, object]:
    return {
        "name": trace.name,
        "matched": trace.matched,
        "reason": trace.reason,
        "added": dict(trace.added),
        "kept": list(trace.kept),
    }


def _request(request: Request) -> dict[str, object]:
    family = request.family.value if request.family else None
    return {
        "family": family,
        "gpus": request.gpus,
        "memory": request.memory,
        "core": request.core,
    }
