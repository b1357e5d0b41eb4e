"""`linkwise check`: what admission would do with the pods of these files."""

import json

from jsonpatch import JsonPatch

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
    table,
    warn,
)
from cli.template import PodTemplate
from cli.value import path_of
from cluster.finding import Finding, Severity
from cluster.request import Request
from policy.selection import Trace
from webhook.outcome import Outcome, Verdict
from webhook.patch import Operation

_COLOURS = {Verdict.ALLOWED: GOOD, Verdict.DENIED: BAD, Verdict.SKIPPED: QUIET}
LONGEST_VALUE = 100
"""How much of an added value a table shows [characters]; JSON has all of it."""


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
        emit([_entry(template, pod, outcome) for template, pod, outcome in outcomes], output)
    return _exit_code(inputs, [outcome for _, _, outcome in outcomes], strict=strict)


def _exit_code(inputs: Inputs, outcomes: list[Outcome], *, strict: bool) -> int:
    if any(outcome.verdict is Verdict.DENIED for outcome in outcomes):
        return 1
    doubtful = inputs.warnings or any(
        finding.severity is Severity.WARNING for one in outcomes for finding in one.findings
    )
    return 3 if strict and doubtful else 0


def _entry(template: PodTemplate, pod: dict[str, object], outcome: Outcome) -> dict[str, object]:
    steps = [step.wire() for step in outcome.patch]
    return {
        "source": template.value.source,
        "kind": template.workload.kind,
        "name": template.workload.name,
        "namespace": template.namespace,
        "template": template.role,
        "replicas": template.replicas,
        "verdict": outcome.verdict.value,
        "findings": [_finding(finding, template) for finding in outcome.findings],
        "profiles": [_trace(trace) for trace in outcome.profiles],
        "patch": [
            {**step, "rule": one.rule} for step, one in zip(steps, outcome.patch, strict=True)
        ],
        "patched": JsonPatch(steps).apply(pod),
        "request": _request(outcome.request),
        "warnings": list(outcome.warnings),
    }


def _finding(finding: Finding, template: PodTemplate) -> dict[str, object]:
    return {
        "code": finding.code.value,
        "severity": finding.severity.value,
        "field": finding.field,
        "value": finding.value,
        "message": finding.message,
        "fix": finding.fix,
        "source": template.value.at(finding.field).source,
    }


def _trace(trace: Trace) -> dict[str, object]:
    return {
        "name": trace.name,
        "matched": trace.matched,
        "reason": trace.reason,
        "added": dict(trace.added),
        "kept": list(trace.kept),
    }


def _request(request: Request) -> dict[str, object]:
    family = request.family.value if request.family else None
    return {
        "family": family,
        "gpus": request.gpus,
        "memory": request.memory,
        "core": request.core,
    }


def _show(template: PodTemplate, outcome: Outcome) -> None:
    workload = template.workload
    name = f"{template.namespace}/{workload.name}"
    role = f"{template.role}s" if template.role == "worker" else template.role
    say(
        Paint(outcome.verdict.value, _COLOURS[outcome.verdict], bold=True),
        Paint(f"{workload.kind} {name}", bold=True),
        *([f"({role})"] if role else []),
        Paint(template.value.source, QUIET),
    )
    for finding in outcome.findings:
        _show_finding(finding, template)
    rows: list[list[Cell]] = [_profile_row(trace) for trace in outcome.profiles]
    rows += [
        ["change", _words(step), _value(step), Paint(step.rule, QUIET)] for step in outcome.patch
    ]
    table(rows, indent=2)
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


def _profile_row(trace: Trace) -> list[Cell]:
    if not trace.matched:
        return ["profile", trace.name, Paint("does not match", QUIET), Paint(trace.reason, QUIET)]
    added = ", ".join(f"{_last(path)}={value}" for path, value in trace.added.items())
    kept = ", ".join(map(_last, trace.kept))
    told = [f"adds {added}"] if added else []
    told += [f"keeps the pod's own {kept}"] if kept else []
    return ["profile", trace.name, "; ".join(told) or "adds nothing", Paint(trace.reason, QUIET)]


def _last(path: str) -> str:
    """Return the key of a label's or an annotation's path."""
    return str(path_of(path)[-1])


def _words(step: Operation) -> str:
    """Return what a step does, with the path as people write it."""
    parts = [part.replace("~1", "/").replace("~0", "~") for part in step.path.split("/")[1:]]
    appends = parts[-1] == "-"
    text = ""
    for part in parts[:-1] if appends else parts:
        plain = part.isidentifier()
        text += (f".{part}" if text else part) if plain else f"[{part}]"
    return f"{'append to' if appends else step.op} {text}"


def _value(step: Operation) -> str:
    wire = step.wire()
    if "value" not in wire:
        return ""
    text = json.dumps(wire["value"], ensure_ascii=False)
    return text if len(text) <= LONGEST_VALUE else f"{text[: LONGEST_VALUE - 1]}…"


def _show_sum(outcomes: list[Outcome]) -> None:
    counts = {verdict.value: sum(one.verdict is verdict for one in outcomes) for verdict in Verdict}
    warnings = sum(f.severity is Severity.WARNING for one in outcomes for f in one.findings)
    told = ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)
    doubt = f"; {warnings} warning{'s' if warnings > 1 else ''}" if warnings else ""
    plural = "s" if len(outcomes) != 1 else ""
    say(f"{len(outcomes)} pod template{plural}: {told or 'nothing to judge'}{doubt}")
