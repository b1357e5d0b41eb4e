"""What people are told about a pod: at most three short warnings, or every reason of a refusal.

An API server drops a warning that has a control character, and cuts long ones when there are many,
so warnings are short, printable and few. Texts carry what users wrote, which nobody has validated.
"""

from collections.abc import Iterable, Sequence

from cluster.finding import Code, Finding, Severity
from policy.problem import Problem

MAX_WARNINGS = 3
MAX_WARNING_LENGTH = 120
"""[characters]"""

FORBIDDEN_BY_POLICY = frozenset(
    {
        Code.CAPACITY,
        Code.VISIBLE_DEVICES,
        Code.ENVIRONMENT,
        Code.SCHEDULER,
        Code.SHARED_ONE,
    }
)
"""Requests that another policy would let pass; all other errors are invalid whoever judges."""


def printable(text: str) -> str:
    """Return the text with everything that does not print (newlines too) replaced by a mark."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


def admission_warnings(findings: Iterable[Finding | Problem]) -> tuple[str, ...]:
    """Return what `kubectl` shows: the warnings, or the first two and which others there are."""
    told = [finding for finding in findings if finding.severity is Severity.WARNING]
    if not told:
        return ()
    texts = list(dict.fromkeys(_short(f"{finding.code} {finding.message}") for finding in told))
    if len(texts) <= MAX_WARNINGS:
        return tuple(texts)
    rest = len(texts) - (MAX_WARNINGS - 1)
    codes = ", ".join(dict.fromkeys(finding.code.value for finding in told))
    return (
        *texts[: MAX_WARNINGS - 1],
        _short(f"{rest} more warnings, `linkwise check` shows them all ({codes})"),
    )


def _short(text: str) -> str:
    text = printable(text)
    if len(text) <= MAX_WARNING_LENGTH:
        return text
    return text[: MAX_WARNING_LENGTH - 1].rstrip() + "\N{HORIZONTAL ELLIPSIS}"


def errors_of(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings that deny."""
    return [finding for finding in findings if finding.severity is Severity.ERROR]


def denial_status(errors: Sequence[Finding]) -> tuple[int, str]:
    """Return the HTTP code and the Kubernetes reason of a refusal.

    403 where only the policy minds (another cluster might take the pod), else 422.
    """
    if all(error.code in FORBIDDEN_BY_POLICY for error in errors):
        return 403, "Forbidden"
    return 422, "Invalid"


def error_text(error: Finding) -> str:
    """Return one error with its remedy."""
    return printable(f"{error.message}; {error.fix} [{error.code}]")


def denial_message(errors: Sequence[Finding]) -> str:
    """Return the whole refusal on one line: every error with its field and its remedy."""
    if len(errors) == 1:
        return f"{printable(errors[0].field)}: {error_text(errors[0])}"
    numbered = (
        f"({number}) {printable(error.field)}: {error_text(error)}"
        for number, error in enumerate(errors, 1)
    )
    return f"{len(errors)} problems: {' '.join(numbered)}"
