"""Problems in policies and profiles, with their lines."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from linkwise.cluster.finding import Code, Severity
from linkwise.manifest.lines import Embedded


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem with its place, message and fix."""

    line: int
    """Line, counted from 1."""
    path: str
    """Such as `[0].objectSelector.matchLabels`; empty for the whole text."""
    message: str
    """The problem and the permitted values, one sentence."""
    fix: str
    """The fix, one sentence."""
    code: Code = Code.POLICY
    severity: Severity = Severity.ERROR


MAX_PROBLEMS = 50
"""Maximum number of reported problems of one text."""
_MAX_LENGTH = 300
"""Maximum length of path, message and fix, which can quote the text [characters]."""
MAX_BYTES = 256 << 10
"""Maximum size of a policy or of profiles in UTF-8. Real ones need a few thousand bytes."""


class PolicyError(ValueError):
    """A policy or a profile is invalid; the last valid one stays in use."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = reported(problems)
        """By line, limited to `MAX_PROBLEMS`."""
        super().__init__("; ".join(_sentence(problem) for problem in self.problems))


def _sentence(problem: Problem) -> str:
    where = f"{problem.path}: " if problem.path else ""
    return f"line {problem.line}: {where}{problem.message}"


def reported(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Limit problems for a report: shortened, at most `MAX_PROBLEMS`, and the number of the rest.

    Args:
        problems: All problems, by line.
    """
    every = tuple(problems)
    first = tuple(_short(problem) for problem in every[:MAX_PROBLEMS])
    rest = every[MAX_PROBLEMS:]
    if not rest:
        return first
    severe = next((one for one in rest if one.severity is Severity.ERROR), rest[0])
    more = replace(
        _short(severe), path="", message=f"and {len(rest)} more", fix="correct these first"
    )
    return (*first, more)


def _short(problem: Problem) -> Problem:
    path, message, fix = (_cut(text) for text in (problem.path, problem.message, problem.fix))
    return replace(problem, path=path, message=message, fix=fix)


def _cut(text: str) -> str:
    if len(text) <= _MAX_LENGTH:
        return text
    return f"{text[: _MAX_LENGTH - 1]}\N{HORIZONTAL ELLIPSIS}"


def check_length(text: str, at: Embedded, code: Code = Code.POLICY) -> None:
    """Reject a text that is too long.

    Raises:
        PolicyError: It is longer than `MAX_BYTES`.
    """
    size = len(text.encode(errors="surrogatepass"))
    if size > MAX_BYTES:
        message = f"the text has {size} bytes; at most {MAX_BYTES} are read"
        raise PolicyError([Problem(at.outer(1), "", message, "shorten it", code)])


def warning(line: int, path: str, message: str, fix: str, code: Code = Code.POLICY) -> Problem:
    """Return a warning."""
    return Problem(line, path, message, fix, code, Severity.WARNING)


def outer(problems: Iterable[Problem], text: Embedded, code: Code | None = None) -> list[Problem]:
    """Return problems of an embedded text by line, with the lines of the outer file."""
    moved = [
        replace(problem, line=text.outer(problem.line), code=code or problem.code)
        for problem in problems
    ]
    return sorted(moved, key=lambda problem: (problem.line, problem.path))
