"""Texts of admission responses: at most three short warnings, or all reasons of a denial.

API servers drop warnings with control characters and truncate many long ones, so warnings are
short, printable and few. Texts include values of users, which are not validated.
"""

from collections.abc import Iterable, Sequence

from linkwise.cluster.finding import Code, Finding, Severity, printable
from linkwise.policy.problem import Problem

MAX_WARNINGS = 3
MAX_WARNING_LENGTH = 120
"""[characters]"""
MAX_ERRORS = 50
"""Errors that a denial shows. After an answer above 3 MiB, an API server admits the pod."""
MAX_ERROR_LENGTH = 1000
"""Of the message and of the field of an error [characters]."""

FORBIDDEN_BY_POLICY = frozenset(
    {
        Code.CAPACITY,
        Code.VISIBLE_DEVICES,
        Code.ENVIRONMENT,
        Code.SCHEDULER,
        Code.SHARED_ONE,
    }
)
"""Errors that depend on the policy; all others are invalid under any policy."""


def admission_warnings(findings: Iterable[Finding | Problem]) -> tuple[str, ...]:
    """Return the warnings; of more than three, the first two and the codes of all."""
    warnings = [finding for finding in findings if finding.severity is Severity.WARNING]
    if not warnings:
        return ()
    texts = list(dict.fromkeys(_short(f"{finding.code} {finding.message}") for finding in warnings))
    if len(texts) <= MAX_WARNINGS:
        return tuple(texts)
    rest = len(texts) - (MAX_WARNINGS - 1)
    codes = ", ".join(dict.fromkeys(finding.code.value for finding in warnings))
    return (
        *texts[: MAX_WARNINGS - 1],
        _short(f"{rest} more warnings, `linkwise check` shows them all ({codes})"),
    )


def _short(text: str) -> str:
    return printable(_truncated(text, MAX_WARNING_LENGTH))


def _truncated(text: str, length: int) -> str:
    if len(text) <= length:
        return text
    return text[: length - 1].rstrip() + "\N{HORIZONTAL ELLIPSIS}"


def errors_of(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings that deny a pod."""
    return [finding for finding in findings if finding.severity is Severity.ERROR]


def error_field(error: Finding) -> str:
    """Return the field of one error."""
    return printable(_truncated(error.field, MAX_ERROR_LENGTH))


def denial_status(errors: Sequence[Finding]) -> tuple[int, str]:
    """Return the HTTP code and the Kubernetes reason of a denial.

    503 for claims that are not known yet, 403 where all errors depend on the policy, else 422.
    """
    if all(error.code is Code.CLAIMS for error in errors):
        return 503, "ServiceUnavailable"
    if all(error.code in FORBIDDEN_BY_POLICY for error in errors):
        return 403, "Forbidden"
    return 422, "Invalid"


def error_text(error: Finding) -> str:
    """Return one error with its fix."""
    message = _truncated(error.message, MAX_ERROR_LENGTH)
    return printable(f"{message}; {_truncated(error.fix, MAX_ERROR_LENGTH)} [{error.code}]")


def denial_message(errors: Sequence[Finding]) -> str:
    """Return the first errors on one line, each with its field and its fix."""
    if len(errors) == 1:
        return f"{error_field(errors[0])}: {error_text(errors[0])}"
    numbered = (
        f"({number}) {error_field(error)}: {error_text(error)}"
        for number, error in enumerate(errors[:MAX_ERRORS], 1)
    )
    return f"{len(errors)} problems: {' '.join(numbered)}"
