"""`linkwise check`: what admission would do with the pods of these files."""

import json

import msgspec

from cli.describe import describe
from cli.fit_text import show_fit
from cli.inputs import Inputs, admitted
from cli.output import (
    BAD,
    DOUBT,
    GOOD,
    QUIET,
    Cell,
    Format,
    Paint,
    emit,
    say,
    sentence,
    warn,
)
from cli.report import Document, Entry, Report, Told
from cluster.finding import Severity
from cluster.fit import MOST_PODS, FitQuestion, FitTemplate
from policy.selection import Trace
from webhook.manifest.question import asked_about
from webhook.manifest.report import entry_of
from webhook.manifest.template import PodTemplate
from webhook.manifest.value import path_of
from webhook.outcome import Verdict

_COLOURS = {Verdict.ALLOWED: GOOD, Verdict.DENIED: BAD, Verdict.SKIPPED: QUIET}


def judged(inputs: Inputs) -> Report:
    """Judge each pod template with what is known here; with a cluster, find its pods a place."""
    found = [_judged(inputs, template) for template in inputs.templates]
    fits, notes = _fits(inputs, [asked for _, asked in found])
    documents = tuple(
        {**entry, "placement": fit} for (entry, _), fit in zip(found, fits, strict=True)
    )
    entries = msgspec.convert(documents, tuple[Entry, ...])
    return Report(documents, entries, inputs.warnings, notes)


def _judged(inputs: Inputs, template: PodTemplate) -> tuple[Document, FitTemplate | None]:
    pod = template.pod()
    outcome = admitted(inputs, template, template.read(pod))
    entry = entry_of(template, pod, outcome)
    return entry, asked_about(template, entry["patched"], outcome)


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
    from cli.placement import placements  # noqa: PLC0415

    fits = iter(msgspec.to_builtins(placements(inputs, question)))
    return [next(fits) if one else None for one in asked], ()


def show_report(report: Report, output: Format, *, strict: bool) -> int:
    """Show what admission would do; return the exit code."""
    for told in (*report.warnings, *report.notes):
        warn(told)
    if output is Format.TABLE:
        for entry in report.entries:
            _show(entry)
        _show_sum(report.entries)
    else:
        emit(list(report.documents), output)
    return _exit_code(report, strict=strict)


def _exit_code(report: Report, *, strict: bool) -> int:
    if any(entry.verdict is Verdict.DENIED for entry in report.entries):
        return 1
    return 3 if strict and (report.warnings or _warnings(report.entries)) else 0


def _warnings(entries: tuple[Entry, ...]) -> int:
    return sum(told.severity is Severity.WARNING for one in entries for told in one.findings)


def _show(entry: Entry) -> None:
    role = f"{entry.template}s" if entry.template == "worker" else entry.template
    say(
        Paint(entry.verdict.value, _COLOURS[entry.verdict], bold=True),
        Paint(f"{entry.kind} {entry.namespace}/{entry.name}", bold=True),
        *([f"({role})"] if role else []),
        Paint(entry.source, QUIET),
    )
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


def _show_finding(told: Told) -> None:
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


def _show_sum(entries: tuple[Entry, ...]) -> None:
    counts = {verdict.value: sum(one.verdict is verdict for one in entries) for verdict in Verdict}
    warnings = _warnings(entries)
    told = ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)
    doubt = f"; {warnings} warning{'s' if warnings > 1 else ''}" if warnings else ""
    plural = "s" if len(entries) != 1 else ""
    say(f"{len(entries)} pod template{plural}: {told or 'nothing to judge'}{doubt}")
