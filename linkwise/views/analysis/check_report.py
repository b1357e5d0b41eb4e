"""The report of `linkwise check`, from files or from a webhook; also its document for scripts."""

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

from linkwise.admission.decide.outcome import Verdict
from linkwise.cluster.finding import Severity
from linkwise.cluster.requests.request import Family
from linkwise.cluster.whatif_api import FitResult
from linkwise.manifest.workload import Unjudged
from linkwise.policy.selection import Trace
from linkwise.views.output.document import Document


class Finding(Struct, frozen=True):
    """One problem of a pod template."""

    code: str
    """Text, because a server may have codes that this version does not know."""
    severity: Severity
    field: str
    """The path as in `kubectl explain`, relative to the pod."""
    value: Any
    message: str
    fix: str
    source: str
    """`file:line`."""


class PatchStep(Struct, frozen=True):
    """One step of a JSON patch (RFC 6902), with the rule that adds it."""

    op: Literal["add", "remove", "replace"]
    path: str
    """A JSON pointer into the pod."""
    rule: str
    value: Any = UNSET
    """Absent for `remove`."""


class PodRequest(Struct, frozen=True):
    """The GPU request of a pod."""

    family: Family | None
    gpus: int
    memory: int
    """Of all cards together [GiB]."""
    core: int
    """Of one card's compute [%]."""


class TemplateReport(Struct, frozen=True, kw_only=True):
    """The result of admission for one pod template."""

    source: str
    """`file:line`."""
    kind: str
    """Of the workload, like its name."""
    name: str
    namespace: str
    template: str | None
    """`worker`, `launcher`, …; null for a workload with one template."""
    replicas: int
    verdict: Verdict
    findings: tuple[Finding, ...]
    profiles: tuple[Trace, ...]
    patch: tuple[PatchStep, ...]
    patched: Mapping[str, Any]
    """The pod after admission."""
    request: PodRequest
    warnings: tuple[str, ...]
    """The warnings that kubectl would show."""
    placement: FitResult | None = None
    """Null where it is not known, or the pod needs no placement."""
    others: str | None = None
    """The resources of other systems that give out GPUs; null: it asks for none."""
    reason: str | None = None
    """Why it is skipped; null: it is not."""
    claim: Mapping[str, Any] | UnsetType = UNSET
    """The ResourceClaim by which the pod gets its GPUs, before they are chosen; its name is random
    when the pod is created. Absent where the pod gets none by a claim."""
    diff: str | UnsetType = UNSET
    """The changes of admission in the format of `diff -u`; only from a server."""


class CheckReport(Document, frozen=True, kw_only=True):
    """The results for all pod templates, in the order of the files."""

    items: tuple[TemplateReport, ...]
    unjudged: tuple[Unjudged, ...] = ()
    """Objects that may create pods and were not judged, because their kind is not known."""
    warnings: tuple[str, ...] = ()
    """Objects that were passed over, and guesses."""
    notes: tuple[str, ...] = ()
    """Unknown facts, although the files are correct."""
