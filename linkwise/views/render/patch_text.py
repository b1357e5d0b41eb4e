"""Describes the steps of a patch in words."""

import json
from collections.abc import Iterator

from msgspec import UNSET

from linkwise.cluster.keys import GANG
from linkwise.views.analysis.check_report import PatchStep

LONGEST_VALUE = 80
"""The length at which a value is cut [characters]; JSON output has all of it."""


def describe(step: PatchStep) -> Iterator[str]:
    """Yield one sentence for each field that a step adds, removes or replaces."""
    parts = [part.replace("~1", "/").replace("~0", "~") for part in step.path.split("/")[1:]]
    value = step.value
    if value is UNSET:
        yield f"removes {_words(parts)}"
        return
    requirements = list(_requirements(value))
    if "affinity" in parts and requirements:
        yield from (f"requires nodes with {text}" for text in requirements)
    elif "env" in parts:
        verb = "replaces" if step.op == "replace" else "sets"
        where = ".".join(parts[1:2]) + f"[{parts[2]}]"
        yield from (f"{verb} {text} in {where}" for text in map(_variable, _listed(value)))
    elif "schedulingGates" in parts:
        yield f"holds the pod with gate {GANG} until its GPUs are chosen"
    elif parts[:1] == ["metadata"]:
        yield from _metadata(parts, value)
    else:
        yield f"{'replaces' if step.op == 'replace' else 'sets'} {_words(parts)} = {short(value)}"


def _metadata(parts: list[str], value: object) -> Iterator[str]:
    kind = {"labels": "label", "annotations": "annotation"}.get(parts[1], parts[1])
    added = value if isinstance(value, dict) else {parts[-1]: value}
    yield from (f"adds {kind} {key}={text}" for key, text in added.items())


def _requirements(value: object) -> Iterator[str]:
    """Yield every node requirement inside a value."""
    if isinstance(value, list):
        for item in value:
            yield from _requirements(item)
    elif isinstance(value, dict) and "operator" in value:
        yield f"{value['key']} {value['operator']} ({', '.join(value.get('values', []))})"
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _requirements(inner)


def _variable(entry: object) -> str:
    if not isinstance(entry, dict):
        return short(entry)
    if "valueFrom" not in entry:
        return f"{entry['name']}={entry.get('value', '')}"
    # Linkwise only writes references to annotations: metadata.annotations['<key>'].
    reference = str(entry["valueFrom"]["fieldRef"]["fieldPath"])
    _, annotation, _ = reference.split("'")
    return f"{entry['name']} from annotation {annotation}"


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else [value]


def _words(parts: list[str]) -> str:
    """Return a path as in `kubectl explain`; a `-` at its end, which appends, is left out."""
    text = ""
    for part in parts[:-1] if parts[-1] == "-" else parts:
        if part.isidentifier():
            text += f".{part}" if text else part
        else:
            text += f"[{part}]"
    return text


def short(value: object) -> str:
    """Return a value as JSON, cut where it is long."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= LONGEST_VALUE else f"{text[: LONGEST_VALUE - 1]}…"
