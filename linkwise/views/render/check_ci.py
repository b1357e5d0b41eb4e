"""The output of `linkwise check` for CI: JUnit XML, SARIF 2.1.0 and GitHub workflow commands."""

import json
from collections.abc import Iterator, Sequence
from urllib.parse import quote
from xml.etree import ElementTree as ET

from linkwise.admission.decide.outcome import Verdict
from linkwise.cluster.finding import Severity, printable
from linkwise.cluster.whatif_api import FitResult
from linkwise.views.analysis.check_report import CheckReport, Finding, TemplateReport
from linkwise.views.output.printer import sentence
from linkwise.views.render.finding_titles import TITLES

_SARIF = "https://json.schemastore.org/sarif-2.1.0.json"


def junit(report: CheckReport, unreadable: Sequence[str] = ()) -> str:
    """Return JUnit XML with a test case for each pod template; a denied one fails.

    What could not be judged, or not be read, is an error.
    """
    suite = ET.Element("testsuite", name="linkwise check")
    for entry in report.items:
        _case(suite, entry)
    for unjudged in report.unjudged:
        case = _element(suite, unjudged.kind, unjudged.name, unjudged.source)
        ET.SubElement(case, "error", message=printable(unjudged.reason), type="unjudged")
    for reason in unreadable:
        case = ET.SubElement(suite, "testcase", classname="file", name=printable(reason))
        ET.SubElement(case, "error", message=printable(reason), type="not read")
    counts = {
        "tests": len(suite),
        "failures": len(suite.findall("*/failure")),
        "errors": len(suite.findall("*/error")),
        "skipped": len(suite.findall("*/skipped")),
    }
    for name, count in counts.items():
        suite.set(name, str(count))
    root = ET.Element("testsuites")
    root.append(suite)
    ET.indent(root)
    text = ET.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def sarif(report: CheckReport, unreadable: Sequence[str] = ()) -> str:
    """Return SARIF with a result for each finding; its rule is the finding's code."""
    findings = [(entry, finding) for entry in report.items for finding in entry.findings]
    rules = list(dict.fromkeys(finding.code for _, finding in findings))
    run = {
        "tool": {"driver": {"name": "linkwise", "rules": [_rule(code) for code in rules]}},
        "invocations": [
            {
                "executionSuccessful": not (report.unjudged or unreadable),
                "toolExecutionNotifications": [
                    {
                        "level": "error",
                        "message": {"text": unjudged.sentence},
                        "locations": [_location(unjudged.source)],
                    }
                    for unjudged in report.unjudged
                ]
                + [{"level": "error", "message": {"text": reason}} for reason in unreadable],
            }
        ],
        "results": [
            {
                "ruleId": finding.code,
                "ruleIndex": rules.index(finding.code),
                "level": _level(finding),
                "message": {"text": f"{_title(entry)}: {_text(finding)}"},
                "locations": [_location(finding.source, finding.field)],
            }
            for entry, finding in findings
        ]
        + [
            {
                "level": "error",
                "message": {"text": f"{_title(entry)}: {_misfit(fit)}"},
                "locations": [_location(entry.source)],
            }
            for entry, fit in _misfits(report)
        ],
    }
    return f"{json.dumps({'$schema': _SARIF, 'version': '2.1.0', 'runs': [run]}, indent=2)}\n"


def github(report: CheckReport, unreadable: Sequence[str] = ()) -> str:
    """Return a workflow command for each finding, and for all that was not judged or not read."""
    lines = [
        _command(
            _level(finding), finding.source, finding.code, f"{_title(entry)}: {_text(finding)}"
        )
        for entry in report.items
        for finding in entry.findings
    ]
    lines += [
        _command("error", entry.source, "does not fit", f"{_title(entry)}: {_misfit(fit)}")
        for entry, fit in _misfits(report)
    ]
    lines += [
        _command("error", unjudged.source, "not judged", unjudged.sentence)
        for unjudged in report.unjudged
    ]
    lines += [f"::error title=not read::{_escaped(reason)}" for reason in unreadable]
    return "".join(f"{line}\n" for line in lines)


def _rule(code: str) -> dict[str, object]:
    title = TITLES.get(code, "A finding of another version")
    text = f"{title}. The result has the fix."
    example = f"docs/findings.md of Linkwise has a wrong and a correct example under {code}."
    return {
        "id": code,
        "shortDescription": {"text": f"{title}."},
        "fullDescription": {"text": text},
        "help": {"text": f"{text} {example}"},
    }


def _case(suite: ET.Element, entry: TemplateReport) -> None:
    name = f"{entry.namespace}/{entry.name}"
    role = f" ({entry.template})" if entry.template else ""
    case = _element(suite, entry.kind, f"{name}{role}", entry.source)
    if entry.verdict is Verdict.DENIED:
        errors = [finding for finding in entry.findings if finding.severity is Severity.ERROR]
        codes = ", ".join(dict.fromkeys(finding.code for finding in errors))
        failure = ET.SubElement(case, "failure", message=f"denied: {codes}", type="denied")
        failure.text = "\n".join(_lines(errors))
    elif entry.placement and not entry.placement.fits:
        reason = printable(_misfit(entry.placement))
        ET.SubElement(case, "failure", message=reason, type="does not fit")
    elif entry.verdict is Verdict.SKIPPED:
        ET.SubElement(case, "skipped", message=entry.reason or "skipped")
    warnings = [finding for finding in entry.findings if finding.severity is Severity.WARNING]
    if warnings:
        ET.SubElement(case, "system-out").text = "\n".join(_lines(warnings))


def _element(suite: ET.Element, kind: str, name: str, source: str) -> ET.Element:
    file, _, line = source.rpartition(":")
    return ET.SubElement(
        suite,
        "testcase",
        classname=printable(kind),
        name=printable(name) or "without a name",
        file=printable(file),
        line=line,
    )


def _lines(findings: list[Finding]) -> Iterator[str]:
    for finding in findings:
        head = f"{finding.severity.value} {finding.code} {finding.source} {finding.field}"
        yield printable(f"{head}: {_text(finding)}")


def _location(source: str, field: str = "") -> dict[str, object]:
    file, _, line = source.rpartition(":")
    uri = f"file://{quote(file)}" if file.startswith("/") else quote(file)
    place: dict[str, object] = {
        "physicalLocation": {
            "artifactLocation": {"uri": uri},
            "region": {"startLine": int(line)},
        }
    }
    return {**place, "logicalLocations": [{"fullyQualifiedName": field}]} if field else place


def _command(level: str, source: str, title: str, text: str) -> str:
    file, _, line = source.rpartition(":")
    where = f"file={_property(file)},line={line},title={_property(title)}"
    return f"::{level} {where}::{_escaped(text)}"


def _property(text: str) -> str:
    return _escaped(text).replace(":", "%3A").replace(",", "%2C")


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _level(finding: Finding) -> str:
    return "error" if finding.severity is Severity.ERROR else "warning"


def _title(entry: TemplateReport) -> str:
    return f"{entry.kind} {entry.namespace}/{entry.name}"


def _misfits(report: CheckReport) -> Iterator[tuple[TemplateReport, FitResult]]:
    """Yield the templates whose pods do not fit, each with the result."""
    for entry in report.items:
        if (fit := entry.placement) and not fit.fits:
            yield entry, fit


def _misfit(fit: FitResult) -> str:
    when = "never fits" if fit.never else "does not fit now"
    return f"{when}: {fit.reason}" if fit.reason else when


def _text(finding: Finding) -> str:
    return f"{sentence(finding.message)} Fix: {sentence(finding.fix)}"
