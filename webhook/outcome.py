"""What admission makes of a pod, and why."""

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct, field

from cluster.finding import Finding
from cluster.request import Request
from policy.profile import Trace
from webhook.patch import Operation


class Verdict(StrEnum):
    """The three answers."""

    ALLOWED = "allowed"
    DENIED = "denied"
    SKIPPED = "skipped"
    """Nothing of ours: the pod passes as it is."""


class Outcome(Struct, frozen=True, gc=False):
    """One pod's answer."""

    verdict: Verdict
    findings: tuple[Finding, ...] = ()
    """All of them, errors and warnings, in the order of the pod."""
    warnings: tuple[str, ...] = ()
    """What `kubectl` shows: at most three, of at most 120 characters, printable."""
    profiles: tuple[Trace, ...] = ()
    """Every profile, and why it applied or did not."""
    patch: tuple[Operation, ...] = ()
    """Empty unless allowed."""
    request: Request = Request()
    labels: Mapping[str, str] = field(default_factory=dict)
    """The pod's labels, profiles included."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    """The pod's annotations, profiles included and the record of an allocation left out."""
    audit: dict[str, str] | None = None
    """Audit annotations: which policy, which rules, which findings."""
