"""The text of `linkwise check`."""

import json

from msgspec import UNSET

from linkwise.admission.decide.outcome import Verdict
from linkwise.cluster.finding import Severity
from linkwise.manifest.value import path_of
from linkwise.policy.selection import Trace
from linkwise.views.analysis.check_report import CheckReport, Finding, TemplateReport
from linkwise.views.output.printer import (
    BAD,
    GOOD,
    QUIET,
    WARNING,
    Cell,
    Paint,
    is_quiet,
    say,
    sentence,
)
from linkwise.views.output.words import plural
from linkwise.views.render.patch_text import describe

_COLOURS = {Verdict.ALLOWED: GOOD, Verdict.DENIED: BAD, Verdict.SKIPPED: QUIET}


def show(report: CheckReport, unreadable: int = 0) -> None:
    """Write the result for each pod template; quietly, only for denied ones.

    Args:
        report: The results.
        unreadable: Number of files and objects that could not be read.
    """
    denied = [entry for entry in report.items if entry.verdict is Verdict.DENIED]
    for entry in denied if is_quiet() else report.items:
        _show(entry)
    if not is_quiet():
        _show_summary(report, unreadable)


def _show(entry: TemplateReport) -> None:
    role = f"{entry.template}s" if entry.template == "worker" else entry.template
    say(
        Paint(entry.verdict.value, _COLOURS[entry.verdict], bold=True),
        Paint(f"{entry.kind} {entry.namespace}/{entry.name}", bold=True),
        *([f"({role})"] if role else []),
        Paint(entry.source, QUIET),
    )
    if entry.others:
        say(" ", sentence(f"asks for {entry.others}: Linkwise does not place it"))
    elif entry.reason:
        say(" ", sentence(entry.reason))
    for finding in entry.findings:
        _show_finding(finding)
    for trace in entry.profiles:
        say(" ", f"profile {trace.name}", *_profile(trace))
    for step in entry.patch:
        for text in describe(step):
            say("  change", text, Paint(f"({step.rule})", QUIET))
    if entry.claim is not UNSET:
        for request in entry.claim["spec"]["devices"]["requests"]:
            exactly = request["exactly"]
            devices = f"{exactly['count']} of class {exactly['deviceClassName']}"
            say("  claim", f"request {request['name']}: {devices}, by UUID once they are chosen")
    if entry.placement:
        # The engine costs 0.2 s to import; a check without a cluster needs none.
        from linkwise.views.render.fit_text import show_fit  # noqa: PLC0415

        show_fit(entry.placement)
    say()


def _show_finding(finding: Finding) -> None:
    colour = BAD if finding.severity is Severity.ERROR else WARNING
    value = "" if finding.value is None else f" = {json.dumps(finding.value, ensure_ascii=False)}"
    say(
        " ",
        Paint(f"{finding.severity.value} {finding.code}", colour, bold=True),
        f"{finding.field}{value}",
        Paint(finding.source, QUIET),
    )
    say("   ", sentence(finding.message))
    say("   ", Paint("fix:", GOOD), sentence(finding.fix))


def _profile(trace: Trace) -> list[Cell]:
    if not trace.matched:
        return ["does not match:", Paint(trace.reason, QUIET)]
    added = ", ".join(f"{_last(path)}={value}" for path, value in trace.added.items())
    kept = ", ".join(map(_last, trace.kept))
    effects = [f"adds {added}"] if added else []
    effects += [f"keeps the pod's own {kept}"] if kept else []
    return ["matches,", "; ".join(effects) or "adds nothing", Paint(f"({trace.reason})", QUIET)]


def _last(path: str) -> str:
    """Return the key of a label's or an annotation's path."""
    return str(path_of(path)[-1])


def _show_summary(report: CheckReport, unreadable: int) -> None:
    entries = report.items
    counts = {
        verdict.value: sum(entry.verdict is verdict for entry in entries) for verdict in Verdict
    }
    verdicts = ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)
    findings = [finding for entry in entries for finding in entry.findings]
    warnings = sum(finding.severity is Severity.WARNING for finding in findings)
    warning = f"; {warnings} {plural('warning', warnings)}" if warnings else ""
    unjudged = f"; {len(report.unjudged)} not judged" if report.unjudged else ""
    unread = f"; {unreadable} not read" if unreadable else ""
    templates = plural("pod template", len(entries))
    say(f"{len(entries)} {templates}: {verdicts or 'nothing to judge'}{warning}{unjudged}{unread}")
