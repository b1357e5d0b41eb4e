"""Warnings about the pods that an owner will create, by the code of `linkwise check`. Pure.

`owner_findings` reads an owner in a child process. It returns bytes, which the main process
decodes.
"""

from collections.abc import Mapping
from dataclasses import replace

import msgspec
from msgspec import Raw, Struct

from linkwise.admission.decide.admit import admit
from linkwise.admission.decide.messages import admission_warnings
from linkwise.admission.decide.outcome import Verdict
from linkwise.admission.dry_run.dryrun import MAX_TEMPLATES
from linkwise.admission.dry_run.fit_template import fit_template
from linkwise.admission.dry_run.pod_report import patched
from linkwise.cluster.finding import Finding, Severity, printable
from linkwise.cluster.nodes.capacity import Capacity
from linkwise.cluster.whatif_api import FitRequest, FitResult, FitTemplate
from linkwise.manifest.objects import values_in
from linkwise.manifest.value import InputError
from linkwise.manifest.workload import templates_of
from linkwise.policy.snapshot import PolicySnapshot

MAX_BYTES = 128 << 10
"""Longest owner that is read [bytes of JSON]; half a second at most."""
_MARKS = (b"aliyun.com/", b"nvidia.com/", b"alibabacloud.com/", b"NVIDIA_", b"resourceClaims")
"""One of them is in every object whose pods Linkwise would change or refuse."""
_REASON_SHOWN = 200
"""Of the reason of a refusal; API servers truncate warnings after 256 characters."""


class OwnerFindings(Struct, frozen=True):
    """What is found about the pods of an owner."""

    warnings: tuple[str, ...] = ()
    """At most three, short and printable."""
    to_place: tuple[FitTemplate, ...] = ()
    """Templates for the scorer's fit API; none if a pod would be refused."""

    @property
    def fit_request(self) -> FitRequest:
        """The request to the scorer's fit API."""
        return FitRequest(list(self.to_place))


NOTHING_FOUND = OwnerFindings()
_findings = msgspec.json.Decoder(OwnerFindings)


def relevant(owner: Raw) -> bytes | None:
    """Return an owner that may have pods with GPUs, and is small enough to be read; else None.

    Cost: linear in the length of a small one.
    """
    if memoryview(owner).nbytes > MAX_BYTES:
        return None
    text = bytes(owner)
    return text if any(mark in text for mark in _MARKS) else None


def owner_findings(
    owner: bytes,
    namespace: str,
    namespace_labels: Mapping[str, str] | None,
    policy: PolicySnapshot,
    capacity: Capacity,
) -> bytes:
    """Return what is found about the pods of an owner, encoded for `decode_findings`.

    Args:
        owner: The object, as JSON. One that its API would reject has no findings.
        namespace: Its namespace.
        namespace_labels: The labels of that; None: unknown.
        policy: Policy and profiles.
        capacity: Maximum capacity of the nodes.

    Cost: that of admission for each of its first `MAX_TEMPLATES` pod templates.
    """
    try:
        found = _findings_of(owner, namespace, namespace_labels, policy, capacity)
    except (InputError, UnicodeDecodeError):
        found = NOTHING_FOUND
    return msgspec.json.encode(found)


def decode_findings(encoded: bytes) -> OwnerFindings:
    """Return what `owner_findings` has encoded."""
    return _findings.decode(encoded)


def fit_warning(fits: list[FitResult]) -> str:
    """Return whether the pods of all templates fit now, for the user who asked for a dry run."""
    refused = next((fit for fit in fits if not fit.fits), None)
    if refused is None:
        return "Linkwise: all its pods fit now"
    when = "would not fit on the empty cluster either" if refused.never else "does not fit now"
    reason = printable((refused.reason or "")[:_REASON_SHOWN])
    return f"Linkwise: it {when}: {reason}"


def _findings_of(
    owner: bytes,
    namespace: str,
    labels: Mapping[str, str] | None,
    policy: PolicySnapshot,
    capacity: Capacity,
) -> OwnerFindings:
    (value,) = values_in(owner.decode(), "owner")
    findings: list[Finding] = []
    to_place: list[FitTemplate | None] = []
    is_refused = False
    for template in (templates_of(value, namespace) or ())[:MAX_TEMPLATES]:
        pod = template.pod()
        outcome = admit(
            template.read(pod),
            namespace=namespace,
            namespace_labels=labels,
            policy=policy,
            capacity=capacity,
            workload=template.workload,
        )
        findings += outcome.findings
        is_refused |= outcome.verdict is Verdict.DENIED
        to_place.append(fit_template(template, patched(pod, outcome), outcome))
    # Errors come first, since only a few are shown.
    findings.sort(key=lambda finding: finding.severity is not Severity.ERROR)
    placed = () if is_refused else tuple(filter(None, to_place))
    return OwnerFindings(admission_warnings(map(_as_warning, findings)), placed)


def _as_warning(finding: Finding) -> Finding:
    if finding.severity is Severity.WARNING:
        return finding
    # Pods with an error are refused, or wait for ever for others of their gang.
    message = f"its pods cannot start: {finding.message}"
    return replace(finding, severity=Severity.WARNING, message=message)
