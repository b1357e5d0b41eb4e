"""`linkwise policy lint`: shows the problems of a policy or a profile, and its settings."""

from typing import Any

from msgspec import Struct

from linkwise.cluster.finding import Severity
from linkwise.policy.lint import Change, lint
from linkwise.policy.problem import Problem
from linkwise.topology.catalogue import NAMES
from linkwise.views.files.source import read_text, shown_name
from linkwise.views.output.document import Document
from linkwise.views.output.printer import (
    BAD,
    GOOD,
    QUIET,
    WARNING,
    Cell,
    Format,
    Paint,
    emit,
    say,
    sentence,
)
from linkwise.views.render.patch_text import short


class LintFinding(Struct, frozen=True, kw_only=True):
    """An error or a risk."""

    code: str
    severity: Severity
    source: str
    """`file:line`."""
    field: str
    """Path in the document."""
    message: str
    fix: str


class LintChange(Struct, frozen=True, kw_only=True):
    """A setting of the file."""

    source: str
    """`file:line`."""
    name: str
    when: str
    """The pods that it applies to; empty: all."""
    sets: dict[str, Any]


class LintReport(Document, frozen=True, kw_only=True):
    """The problems of a policy or a profile, and its settings."""

    findings: list[LintFinding]
    changes: list[LintChange]


def lint_file(name: str, output: Format, *, strict: bool) -> int:
    """Show the problems and the settings of a file; return the exit code.

    Raises:
        InputError: The file cannot be read.
    """
    file = shown_name(name)
    result = lint(read_text(name), machines=NAMES)
    if output is Format.TABLE:
        for problem in result.problems:
            _show_problem(file, problem)
        for change in result.changes:
            _show_change(file, change)
        if not result.problems and not result.changes:
            say(f"{file}: nothing to complain about, and nothing is decided.")
    else:
        report = LintReport(
            findings=[_problem(file, problem) for problem in result.problems],
            changes=[_change(file, change) for change in result.changes],
        )
        emit(report, output)
    if any(problem.severity is Severity.ERROR for problem in result.problems):
        return 1
    return 3 if strict and result.problems else 0


def _show_problem(file: str, problem: Problem) -> None:
    colour = BAD if problem.severity is Severity.ERROR else WARNING
    say(
        Paint(f"{problem.severity.value} {problem.code.value}", colour, bold=True),
        f"{file}:{problem.line}",
        problem.path,
    )
    say(" ", sentence(problem.message))
    say(" ", Paint("fix:", GOOD), sentence(problem.fix))


def _show_change(file: str, change: Change) -> None:
    head: list[Cell] = [Paint("decides", bold=True), f"{file}:{change.line}", change.what]
    if change.what in change.sets:
        # A key of a policy is its path.
        say(*head, f"= {short(change.sets[change.what])}")
        return
    say(*head, *([Paint(f"when {change.when}", QUIET)] if change.when else []))
    for path, value in change.sets.items():
        say("   ", f"{path} = {short(value)}")


def _problem(file: str, problem: Problem) -> LintFinding:
    return LintFinding(
        code=problem.code.value,
        severity=problem.severity,
        source=f"{file}:{problem.line}",
        field=problem.path,
        message=problem.message,
        fix=problem.fix,
    )


def _change(file: str, change: Change) -> LintChange:
    return LintChange(
        source=f"{file}:{change.line}", name=change.what, when=change.when, sets=dict(change.sets)
    )
