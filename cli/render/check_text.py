"""What `check` shows to people."""

import json

from cli.analysis.report import CheckReport, Entry, Finding
from cli.render.fit_text import show_fit
from cli.render.output import BAD, DOUBT, GOOD, QUIET, Cell, Paint, is_quiet, say, sentence
from cli.render.patch_step import describe
from cluster.finding import Severity
from manifest.value import path_of
from policy.selection import Trace
from webhook.outcome import Verdict

_COLOURS = {Verdict.ALLOWED: GOOD, Verdict.DENIED: BAD, Verdict.SKIPPED: QUIET}


def show(report: CheckReport) -> None:
    """Write what admission would do with each pod template; quietly, only with denied ones."""
    denied = [entry for entry in report.items if entry.verdict is Verdict.DENIED]
    for entry in denied if is_quiet() else report.items:
        _show(entry)
    if not is_quiet():
        _show_sum(report)


def _show(entry: Entry) -> None:
    role = f"{entry.template}s" if entry.template == "worker" else entry.template
    say(
        Paint(entry.verdict.value, _COLOURS[entry.verdict], bold=True),
        Paint(f"{entry.kind} {entry.namespace}/{entry.name}", bold=True),
        *([f"({role})"] if role else []),
        Paint(entry.source, QUIET),
    )
    if entry.others:
        say(" ", sentence(f"asks for {entry.others}: Linkwise does not place it"))
    for told in entry.findings:
        _show_finding(told)
    for trace in entry.profiles:
        say(" ", f"profile {trace.name}", *_profile(trace))
    for step in entry.patch:
        for text in describe(step):
            say("  change", text, Paint(f"({step.rule})", QUIET))
    if entry.placement:
        show_fit(entry.placement)
    say()


def _show_finding(told: Finding) -> None:
    colour = BAD if told.severity is Severity.ERROR else DOUBT
    value = "" if told.value is None else f" = {json.dumps(told.value, ensure_ascii=False)}"
    say(
        " ",
        Paint(f"{told.severity.value} {told.code}", colour, bold=True),
        f"{told.field}{value}",
        Paint(told.source, QUIET),
    )
    say("   ", sentence(told.message))
    say("   ", Paint("fix:", GOOD), sentence(told.fix))


def _profile(trace: Trace) -> list[Cell]:
    if not trace.matched:
        return ["does not match:", Paint(trace.reason, QUIET)]
    added = ", ".join(f"{_last(path)}={value}" for path, value in trace.added.items())
    kept = ", ".join(map(_last, trace.kept))
    told = [f"adds {added}"] if added else []
    told += [f"keeps the pod's own {kept}"] if kept else []
    return ["matches,", "; ".join(told) or "adds nothing", Paint(f"({trace.reason})", QUIET)]


def _last(path: str) -> str:
    """Return the key of a label's or an annotation's path."""
    return str(path_of(path)[-1])


def _show_sum(report: CheckReport) -> None:
    entries = report.items
    counts = {verdict.value: sum(one.verdict is verdict for one in entries) for verdict in Verdict}
    told = ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)
    findings = [one for entry in entries for one in entry.findings]
    warnings = sum(one.severity is Severity.WARNING for one in findings)
    doubt = f"; {warnings} warning{'s' if warnings > 1 else ''}" if warnings else ""
    unjudged = f"; {len(report.unjudged)} not judged" if report.unjudged else ""
    plural = "s" if len(entries) != 1 else ""
    say(f"{len(entries)} pod template{plural}: {told or 'nothing to judge'}{doubt}{unjudged}")
