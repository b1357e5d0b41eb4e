"""`linkwise check`: shows the result of admission for pod templates."""

from enum import StrEnum

from typer import echo

from cli.analysis.check_report import CheckReport
from cli.output.printer import Format, complain, emit, warn
from cluster.finding import Severity
from webhook.outcome import Verdict


class View(StrEnum):
    """The output formats of `check`."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    JUNIT = "junit"
    SARIF = "sarif"
    GITHUB = "github"


def show_report(report: CheckReport, view: View, *, strict: bool) -> int:
    """Show a report; return the exit code."""
    for unjudged in report.unjudged:
        complain(unjudged.sentence)
    for message in (*report.warnings, *report.notes):
        warn(message)
    match view:
        case View.TABLE:
            from cli.render import check_text  # noqa: PLC0415 - import only the view that is shown

            check_text.show(report)
        case View.JSON | View.YAML:
            emit(report, Format(view.value))
        case _:
            # XML costs 20 ms to import.
            from cli.render import check_ci  # noqa: PLC0415

            formats = {
                View.JUNIT: check_ci.junit,
                View.SARIF: check_ci.sarif,
                View.GITHUB: check_ci.github,
            }
            echo(formats[view](report), nl=False)
    return _exit_code(report, strict=strict)


def _exit_code(report: CheckReport, *, strict: bool) -> int:
    if any(item.verdict is Verdict.DENIED for item in report.items):
        return 1
    findings = (finding for item in report.items for finding in item.findings)
    doubts = report.warnings or any(it.severity is Severity.WARNING for it in findings)
    return 3 if report.unjudged or (strict and doubts) else 0
