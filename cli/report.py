"""What `check` shows: the entries of pod templates, whoever judged them."""

from collections.abc import Mapping
from dataclasses import dataclass

from msgspec import Struct

from cluster.finding import Severity
from cluster.fit import Fit
from policy.selection import Trace
from webhook.outcome import Verdict
from webhook.patch import Operation

Document = Mapping[str, object]
"""One entry as JSON, as `webhook.manifest.report` makes it."""


class Told(Struct, frozen=True):
    """A finding, with its line."""

    code: str
    """Not a `Code`: a server may know more of them."""
    severity: Severity
    field: str
    value: object
    message: str
    fix: str
    source: str


class Entry(Struct, frozen=True):
    """What people are shown of one pod template."""

    source: str
    kind: str
    name: str
    namespace: str
    template: str | None
    verdict: Verdict
    findings: tuple[Told, ...]
    profiles: tuple[Trace, ...]
    patch: tuple[Operation, ...]
    placement: Fit | None = None
    """None where nobody knows, or no place is looked for."""


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that was judged, in the order of the files."""

    documents: tuple[Document, ...]
    """For scripts."""
    entries: tuple[Entry, ...]
    """The same, for people."""
    warnings: tuple[str, ...]
    """What was passed over or guessed."""
    notes: tuple[str, ...] = ()
    """What is not known, which is no fault of the files."""
