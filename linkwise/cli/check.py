"""`linkwise check`: shows the result of admission for pod templates."""

from collections.abc import Sequence
from enum import StrEnum

from typer import echo

from linkwise.admission.decide.outcome import Verdict
from linkwise.cluster.finding import Severity
from linkwise.views.analysis.check_report import CheckReport, TemplateReport
from linkwise.views.output.printer import EXIT_UNREADABLE, Format, complain, emit, warn


class View(StrEnum):
    """The output formats of `check`."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    JUNIT = "junit"
    SARIF = "sarif"
    GITHUB = "github"


def show_report(
    report: CheckReport, view: View, unreadable: Sequence[str] = (), *, strict: bool
) -> int:
    """Show a report; return the exit code.

    Args:
        report: The report about all that could be read.
        view: The output format. JSON and YAML are not written if anything could not be read:
            a script would take a part for the whole.
        unreadable: Why files or objects could not be read, a line each.
        strict: Warnings make the exit code 3.
    """
    for reason in (*unreadable, *(unjudged.sentence for unjudged in report.unjudged)):
        complain(reason)
    for message in (*report.warnings, *report.notes):
        warn(message)
    is_empty = not (report.items or report.unjudged)
    if unreadable and (is_empty or view in {View.JSON, View.YAML}):
        return EXIT_UNREADABLE
    match view:
        case View.TABLE:
            from linkwise.views.render import check_text  # noqa: PLC0415 - import only the view that is shown

            check_text.show(report, len(unreadable))
        case View.JSON | View.YAML:
            emit(report, Format(view.value))
        case _:
            # XML costs 20 ms to import.
            from linkwise.views.render import check_ci  # noqa: PLC0415

            formats = {
                View.JUNIT: check_ci.junit,
                View.SARIF: check_ci.sarif,
                View.GITHUB: check_ci.github,
            }
            echo(formats[view](report, unreadable), nl=False)
    return EXIT_UNREADABLE if unreadable else _exit_code(report, strict=strict)


def _fails(item: TemplateReport) -> bool:
    """Return whether a pod is denied, or does not fit."""
    return item.verdict is Verdict.DENIED or (
        item.placement is not None and not item.placement.fits
    )


def _exit_code(report: CheckReport, *, strict: bool) -> int:
    if any(map(_fails, report.items)):
        return 1
    findings = (finding for item in report.items for finding in item.findings)
    warnings = report.warnings or any(it.severity is Severity.WARNING for it in findings)
    return 3 if report.unjudged or (strict and warnings) else 0
