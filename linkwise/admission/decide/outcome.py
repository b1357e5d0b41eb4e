"""The outcome of the admission of one pod."""

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct, field

from linkwise.admission.operations import Operation
from linkwise.cluster.finding import Finding
from linkwise.cluster.requests.request import Request
from linkwise.policy.profile import Trace


class Verdict(StrEnum):
    """The decision about a pod."""

    ALLOWED = "allowed"
    DENIED = "denied"
    SKIPPED = "skipped"
    """The pod is out of scope and passes unchanged."""


class Outcome(Struct, frozen=True, gc=False):
    """The decision about one pod, with its reasons and the patch."""

    verdict: Verdict
    findings: tuple[Finding, ...] = ()
    """All errors and warnings."""
    warnings: tuple[str, ...] = ()
    """Warnings of the response: at most three, of at most 120 characters, printable."""
    profiles: tuple[Trace, ...] = ()
    """Every profile, and why it matched or did not."""
    patch: tuple[Operation, ...] = ()
    """Empty unless the pod is allowed."""
    request: Request = Request()
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels of the pod after profiles."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    """Annotations of the pod after profiles, without the record of an allocation."""
    audit: dict[str, str] | None = None
    """Audit annotations: policy, rules, findings."""
