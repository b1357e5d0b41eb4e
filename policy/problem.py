"""What is wrong with a policy or a profile, and where in its file."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from cluster.finding import Code, Severity
from policy.lines import Embedded


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem, with everything a person needs to mend it."""

    line: int
    """Counted from 1, in the text that was read."""
    path: str
    """Such as `[0].objectSelector.matchLabels`; empty for the whole text."""
    message: str
    """What is wrong and what is allowed, one sentence."""
    fix: str
    """What to do, one sentence."""
    code: Code = Code.POLICY
    severity: Severity = Severity.ERROR


class PolicyError(ValueError):
    """A policy or a profile that cannot be taken; the last good one stays."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        """All of them, by line."""
        super().__init__("; ".join(_sentence(problem) for problem in self.problems))


def _sentence(problem: Problem) -> str:
    where = f"{problem.path}: " if problem.path else ""
    return f"line {problem.line}: {where}{problem.message}"


def doubtful(line: int, path: str, message: str, fix: str, code: Code = Code.POLICY) -> Problem:
    """Return a problem that lets the policy be taken all the same."""
    return Problem(line, path, message, fix, code, Severity.WARNING)


def outer(problems: Iterable[Problem], text: Embedded, code: Code | None = None) -> list[Problem]:
    """Return problems of an embedded text by line, with the lines of the file around it."""
    moved = [
        replace(problem, line=text.outer(problem.line), code=code or problem.code)
        for problem in problems
    ]
    return sorted(moved, key=lambda problem: (problem.line, problem.path))
