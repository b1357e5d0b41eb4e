"""Find fields of a Pod's spec that Kubernetes does not know, in workloads of files. Pure."""

from collections.abc import Iterator
from dataclasses import replace
from difflib import get_close_matches
from itertools import islice

from manifest.place import Path
from manifest.pod_fields import POD_SPEC, pod_fields
from manifest.value import Value

_SIMILARITY = 0.8
_MAX_LENGTH = 64
_MAX_MAPS = 1024
"""Maps of a spec that are looked at; a spec has a few dozen."""
_MAX_FOUND = 8
_MEANT = {
    ("Container", "limits"): "resources.limits",
    ("Container", "requests"): "resources.requests",
}
"""By type and field: the field that is meant."""


def unknown_fields(spec: Value) -> Iterator[str]:
    """Yield a warning for each of the first unknown fields: its place, and the field that is meant.

    Args:
        spec: The spec of a pod, or of the template of a workload.

    Cost: some milliseconds at most.
    """
    for path, kind in islice(_unknown(spec), _MAX_FOUND):
        field = replace(spec, plain=None, path=path)
        meant = _meant(kind, str(path[-1]))
        yield (
            f"{field.source}: field {field.words} is unknown to Kubernetes: kubectl refuses it, and"
            f" other clients lose it. {f'Write {meant}' if meant else 'Remove it'}."
        )


def _unknown(spec: Value) -> Iterator[tuple[Path, str]]:
    """Yield the path of each unknown field, and the type that has no such field."""
    types = pod_fields()
    pending: list[tuple[Path, object, str]] = [(spec.path, spec.plain, POD_SPEC)]
    for _ in range(_MAX_MAPS):
        if not pending:
            return
        path, plain, kind = pending.pop()
        if isinstance(plain, list):
            pending += [((*path, i), item, kind) for i, item in reversed([*enumerate(plain)])]
        elif isinstance(plain, dict):
            fields = types[kind]
            known = [(key, fields[key]) for key in plain if key in fields]
            pending += [((*path, key), plain[key], kind) for key, kind in reversed(known) if kind]
            yield from (((*path, key), kind) for key in plain if key not in fields)


def _meant(kind: str, field: str) -> str | None:
    near = get_close_matches(field[:_MAX_LENGTH], pod_fields()[kind], 1, _SIMILARITY)
    return _MEANT.get((kind, field)) or next(iter(near), None)
