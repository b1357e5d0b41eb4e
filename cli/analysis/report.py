"""What `check` shows, whoever judged it: a document for scripts, and for people from it."""

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

from cli.render.document import Document
from cluster.finding import Severity
from cluster.request import Family
from cluster.whatif_api import FitResult
from manifest.workload import Unjudged
from policy.selection import Trace
from webhook.outcome import Verdict


class Finding(Struct, frozen=True):
    """One problem of a pod template."""

    code: str
    """Not a `Code`: a server may know more of them."""
    severity: Severity
    field: str
    """As `kubectl explain` writes it, relative to the pod."""
    value: Any
    message: str
    fix: str
    source: str
    """`file:line`."""


class Step(Struct, frozen=True):
    """One step of a JSON patch (RFC 6902), with the rule that asks for it."""

    op: Literal["add", "remove", "replace"]
    path: str
    """A JSON pointer into the pod."""
    rule: str
    value: Any = UNSET
    """Absent for `remove`."""


class Asked(Struct, frozen=True):
    """What was read of a pod's request."""

    family: Family | None
    gpus: int
    memory: int
    """Of all cards together [GiB]."""
    core: int
    """Of one card's compute [%]."""


class Entry(Struct, frozen=True, kw_only=True):
    """What admission makes of one pod template."""

    source: str
    """`file:line`."""
    kind: str
    """Of the workload, and so its name."""
    name: str
    namespace: str
    template: str | None
    """`worker`, `launcher`, …; null where the workload has one template."""
    replicas: int
    verdict: Verdict
    findings: tuple[Finding, ...]
    profiles: tuple[Trace, ...]
    patch: tuple[Step, ...]
    patched: Mapping[str, Any]
    """The pod as admission leaves it."""
    request: Asked
    warnings: tuple[str, ...]
    """What kubectl would show."""
    placement: FitResult | None = None
    """Null where nobody knows, or no place is looked for."""
    others: str | None = None
    """What it asks others for, who give out GPUs beside Linkwise; null: nothing."""
    diff: str | UnsetType = UNSET
    """What admission changes, as `diff -u` shows it; only from a server."""


class CheckReport(Document, frozen=True, kw_only=True):
    """Everything that was judged, in the order of the files."""

    items: tuple[Entry, ...]
    unjudged: tuple[Unjudged, ...] = ()
    """What may make pods, and was not judged: its kind is not known."""
    warnings: tuple[str, ...] = ()
    """What was passed over or guessed."""
    notes: tuple[str, ...] = ()
    """What is not known, which is no fault of the files."""
