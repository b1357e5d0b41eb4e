"""`linkwise check`: what admission would do with the pods of these files."""

import json

from cli.describe import describe
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
from cluster.finding import Finding, Severity
from policy.selection import Trace
from webhook.manifest.report import entry_of
from webhook.manifest.template import PodTemplate
from webhook.manifest.value import path_of
from webhook.outcome import Outcome, Verdict

_COLOURS = {Verdict.ALLOWED: GOOD, Verdict.DENIED: BAD, Verdict.SKIPPED: QUIET}


def check(inputs: Inputs, output: Format, *, strict: bool) -> int:
    """Judge each pod template and show what admission would do; return the exit code."""
    judged = [(template, template.pod()) for template in inputs.templates]
    outcomes = [
        (template, pod, admitted(inputs, template, template.read(pod))) for template, pod in judged
    ]
    for warning in inputs.warnings:
        warn(warning)
    if output is Format.TABLE:
        for template, _, outcome in outcomes:
            _show(template, outcome)
        _show_sum([outcome for _, _, outcome in outcomes])
    else:
        emit([entry_of(template, pod, outcome) for template, pod, outcome in outcomes], output)
    return _exit_code(inputs, [outcome for _, _, outcome in outcomes], strict=strict)


def _exit_code(inputs: Inputs, outcomes: list[Outcome], *, strict: bool) -> int:
    if any(outcome.verdict is Verdict.DENIED for outcome in outcomes):
        return 1
    doubtful = inputs.warnings or any(
        finding.severity is Severity.WARNING for one in outcomes for finding in one.findings
    )
    return 3 if strict and doubtful else 0


def _show(template: PodTemplate, outcome: Outcome) -> None:
    workload = template.workload
    name = f"{template.namespace}/{workload.name}"
    role = f"{template.role}s" if template.role == "worker" else template.role
    say(
        Paint(outcome.verdict.value, _COLOURS[outcome.verdict], bold=True),
        Paint(f"{workload.kind} {name}", bold=True),
        *([f"({role})"] if role else []),
        Paint(template.source, QUIET),
    )
    for finding in outcome.findings:
        _show_finding(finding, template)
    for trace in outcome.profiles:
        say(" ", f"profile {trace.name}", *_profile(trace))
    for step in outcome.patch:
        for text in describe(step):
            say("  change", text, Paint(f"({step.rule})", QUIET))
    say()


def _show_finding(finding: Finding, template: PodTemplate) -> None:
    colour = BAD if finding.severity is Severity.ERROR else DOUBT
    value = "" if finding.value is None else f" = {json.dumps(finding.value, ensure_ascii=False)}"
    say(
        " ",
        Paint(f"{finding.severity.value} {finding.code.value}", colour, bold=True),
        f"{finding.field}{value}",
        Paint(template.value.at(finding.field).source, QUIET),
    )
    say("   ", sentence(finding.message))
    say("   ", Paint("fix:", GOOD), sentence(finding.fix))


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


def _show_sum(outcomes: list[Outcome]) -> None:
    counts = {verdict.value: sum(one.verdict is verdict for one in outcomes) for verdict in Verdict}
    warnings = sum(f.severity is Severity.WARNING for one in outcomes for f in one.findings)
    told = ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)
    doubt = f"; {warnings} warning{'s' if warnings > 1 else ''}" if warnings else ""
    plural = "s" if len(outcomes) != 1 else ""
    say(f"{len(outcomes)} pod template{plural}: {told or 'nothing to judge'}{doubt}")
