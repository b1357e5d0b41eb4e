"""`linkwise policy lint`: what is wrong with a policy or a profile, and what it decides."""

from typing import Any

from msgspec import Struct

from cli.files.source import read_text, shown_name
from cli.render.document import Document
from cli.render.output import BAD, DOUBT, GOOD, QUIET, Cell, Format, Paint, emit, say, sentence
from cli.render.patch_step import short
from cluster.finding import Severity
from policy.lint import Change, lint
from policy.problem import Problem
from topology.catalogue import NAMES


class LintFinding(Struct, frozen=True, kw_only=True):
    """What is wrong or risky."""

    code: str
    severity: Severity
    source: str
    """`file:line`."""
    field: str
    """Path in the document."""
    message: str
    fix: str


class LintChange(Struct, frozen=True, kw_only=True):
    """What the file decides."""

    source: str
    """`file:line`."""
    name: str
    when: str
    """For which pods; empty: for all."""
    sets: dict[str, Any]


class LintReport(Document, frozen=True, kw_only=True):
    """What is wrong with a policy or a profile, and what it decides."""

    findings: list[LintFinding]
    changes: list[LintChange]


def lint_file(name: str, output: Format, *, strict: bool) -> int:
    """Show what there is to say about a file; return the exit code.

    Raises:
        InputError: The file cannot be read.
    """
    file = shown_name(name)
    found = lint(read_text(name), machines=NAMES)
    if output is Format.TABLE:
        for problem in found.problems:
            _show_problem(file, problem)
        for change in found.changes:
            _show_change(file, change)
        if not found.problems and not found.changes:
            say(f"{file}: nothing to complain about, and nothing is decided.")
    else:
        report = LintReport(
            findings=[_problem(file, problem) for problem in found.problems],
            changes=[_change(file, change) for change in found.changes],
        )
        emit(report, output)
    if any(problem.severity is Severity.ERROR for problem in found.problems):
        return 1
    return 3 if strict and found.problems else 0


def _show_problem(file: str, problem: Problem) -> None:
    colour = BAD if problem.severity is Severity.ERROR else DOUBT
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
        # A key of a policy is named by its path.
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
