"""Findings: errors and warnings for users, each kind with a stable code."""

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """An error denies the pod; a warning does not."""

    ERROR = "error"
    WARNING = "warning"


class Code(StrEnum):
    """Stable codes; `docs/findings.md` explains each with a bad and a good example."""

    CORE_STEP = "LW101"
    CORE_ALONE = "LW102"
    MEMORY_WHOLE = "LW103"
    MEMORY_UNITS = "LW104"
    COUNT_LABEL = "LW105"
    COUNT_DIVIDES = "LW106"
    TWO_FAMILIES = "LW107"
    GPU_WHOLE = "LW108"
    REQUEST_IS_LIMIT = "LW109"
    QUANTITY = "LW110"
    CAPACITY = "LW111"
    NODE_NAME = "LW112"
    VISIBLE_DEVICES = "LW113"
    MPS_LIMIT = "LW114"
    RECORD_REMOVED = "LW115"
    SCHEDULER = "LW116"
    NODE_TERMS = "LW117"
    ENVIRONMENT = "LW118"
    UNREADABLE = "LW119"
    COUNT_UNUSED = "LW120"
    PRIVILEGED = "LW121"
    MISSPELT = "LW122"
    CDI_ANNOTATION = "LW123"
    INJECTION = "LW124"
    CLAIMS = "LW125"
    EXCLUSIVE_CPUS = "LW126"
    CLAIM_REFERENCE = "LW127"
    NO_CLAIM = "LW128"
    CLAIMS_LABEL = "LW129"
    APPLIED_AGAIN = "LW130"
    CLASS = "LW201"
    QOS = "LW202"
    MODEL = "LW203"
    DRIVER = "LW204"
    MODEL_COUNT = "LW205"
    MODEL_MISSING = "LW206"
    MODEL_CONTRADICTS = "LW207"
    SHARED_ONE = "LW301"
    NOT_ENFORCED = "LW302"
    GANG_ORDERED = "LW401"
    GANG_SIZE = "LW402"
    GANG_UNMOVABLE = "LW403"
    GANG_LINK = "LW404"
    GANG_COUNTED = "LW405"
    GANG_WAITS_FOR_PART = "LW406"
    GANG_GROUPS = "LW407"
    GANG_POD_BY_POD = "LW408"
    PROFILE = "LW501"
    POLICY = "LW502"
    RISKY_SELECTOR = "LW503"
    CHAINED_SELECTOR = "LW504"
    UNREACHED_SELECTOR = "LW505"
    NAMESPACE_UNKNOWN = "LW506"
    INTERNAL = "LW901"


_LONGEST_QUOTED = 64
"""No name that is quoted is longer if it is valid [characters]."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem with its place, message and fix."""

    code: Code
    severity: Severity
    field: str
    """Path of the field, as `kubectl explain` writes it, relative to the pod or the document."""
    value: str | int | float | None
    """The offending value as written; None if something is missing."""
    message: str
    """The problem and the permitted values, one sentence."""
    fix: str
    """The fix, one sentence."""


def quoted(text: str) -> str:
    """Return a text of a user in quotes, and only the first characters of a long one."""
    shown = text if len(text) <= _LONGEST_QUOTED else f"{text[: _LONGEST_QUOTED - 1]}…"
    return repr(shown)


def printable(text: str) -> str:
    """Return a text with unprintable characters (and newlines) replaced."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
