"""`linkwise check`: what admission would do with the pods of these files."""

from enum import StrEnum

import msgspec
from typer import echo

from cli.analysis.report import CheckReport, Entry
from cli.files.inputs import Inputs, admitted
from cli.render.output import Format, complain, emit, warn
from cluster.finding import Severity
from cluster.whatif_api import MOST_PODS, FitQuestion, FitTemplate
from manifest.template import PodTemplate
from webhook.fit_template import fit_template
from webhook.outcome import Verdict
from webhook.pod_report import pod_report

Plain = dict[str, object]
"""One entry as JSON, as `webhook.pod_report` makes it."""


class View(StrEnum):
    """How `check` answers."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    JUNIT = "junit"
    SARIF = "sarif"
    GITHUB = "github"


def judged(inputs: Inputs) -> CheckReport:
    """Judge each pod template with what is known here; with a cluster, find its pods a place."""
    found = [_judged(inputs, template) for template in inputs.templates]
    fits, notes = _fits(inputs, [asked for _, asked in found])
    entries = [{**entry, "placement": fit} for (entry, _), fit in zip(found, fits, strict=True)]
    return CheckReport(
        items=msgspec.convert(entries, tuple[Entry, ...]),
        unjudged=inputs.unjudged,
        warnings=inputs.warnings,
        notes=notes,
    )


def _judged(inputs: Inputs, template: PodTemplate) -> tuple[Plain, FitTemplate | None]:
    pod = template.pod()
    typed = template.read(pod)
    outcome = admitted(inputs, template, typed)
    entry = pod_report(template, pod, typed, outcome)
    return entry, fit_template(template, entry["patched"], outcome)


def _fits(inputs: Inputs, asked: list[FitTemplate | None]) -> tuple[list[object], tuple[str, ...]]:
    """Return where each template's pods would go, as JSON, and why nobody knows if so."""
    nowhere: list[object] = [None] * len(asked)
    question = FitQuestion([one for one in asked if one])
    if inputs.cluster is None or not question.templates:
        return nowhere, ()
    if question.pods > MOST_PODS:
        why = f"placement is not known: of more than {MOST_PODS} pods, ask linkwise simulate."
        return nowhere, (why,)
    # Placement costs 0.3 s to import; a check without a cluster needs none.
    from cli.commands.fit import placements  # noqa: PLC0415

    fits = iter(msgspec.to_builtins(placements(inputs, question)))
    return [next(fits) if one else None for one in asked], ()


def show_report(report: CheckReport, view: View, *, strict: bool) -> int:
    """Show what admission would do; return the exit code."""
    for one in report.unjudged:
        complain(one.sentence)
    for told in (*report.warnings, *report.notes):
        warn(told)
    match view:
        case View.TABLE:
            from cli.render import check_text  # noqa: PLC0415 - each view is imported for itself

            check_text.show(report)
        case View.JSON | View.YAML:
            emit(report, Format(view.value))
        case _:
            # XML costs 20 ms to import.
            from cli.render import check_ci  # noqa: PLC0415

            written = {
                View.JUNIT: check_ci.junit,
                View.SARIF: check_ci.sarif,
                View.GITHUB: check_ci.github,
            }
            echo(written[view](report), nl=False)
    return _exit_code(report, strict=strict)


def _exit_code(report: CheckReport, *, strict: bool) -> int:
    if any(entry.verdict is Verdict.DENIED for entry in report.items):
        return 1
    findings = (one for entry in report.items for one in entry.findings)
    doubts = report.warnings or any(one.severity is Severity.WARNING for one in findings)
    return 3 if report.unjudged or (strict and doubts) else 0
