"""Find fields of pods that Kubernetes does not know, in workloads of files. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from difflib import get_close_matches
from itertools import islice

from linkwise.manifest.misplaced import right_place
from linkwise.manifest.place import Path
from linkwise.manifest.pod_fields import POD_SPEC, pod_fields
from linkwise.manifest.template import PodTemplate
from linkwise.manifest.value import Value

_SIMILARITY = 0.8
_MAX_LENGTH = 64
_MAX_MAPS = 1024
"""Maps of a spec that are looked at; a spec has a few dozen."""
_MAX_FOUND = 8
_TEMPLATE, _OBJECT, _POD = "PodTemplateSpec", "Object", "Pod"
_TYPES: Mapping[str, Mapping[str, str]] = {
    _TEMPLATE: {"metadata": "ObjectMeta", "spec": POD_SPEC},
    _OBJECT: dict.fromkeys(("apiVersion", "kind", "spec", "status"), "")
    | {"metadata": "ObjectMeta"},
    _POD: dict.fromkeys(("apiVersion", "kind", "status"), "")
    | {"metadata": "ObjectMeta", "spec": POD_SPEC},
}
"""The fields of the objects around the spec of a pod. Of a workload only the metadata is read."""
_MEANT = {
    ("PodResourceClaim", "source"): (
        "its resourceClaimTemplateName or resourceClaimName one level up, beside the name: "
        "Kubernetes 1.31 removed source"
    ),
    ("Container", "limits"): "resources.limits",
    ("Container", "requests"): "resources.requests",
    **{
        (kind, part): f"metadata.{part}"
        for kind in (POD_SPEC, *_TYPES)
        for part in ("labels", "annotations")
    },
}
"""By type and field: the field that is meant."""


def unknown_fields(workload: Value, template: PodTemplate) -> Iterator[str]:
    """Yield a warning for each of the first unknown fields: its place, and the field that is meant.

    Args:
        workload: The object that has the template; a Pod is its own template.
        template: One of its pod templates.

    Cost: some milliseconds at most.
    """
    pod = template.value
    is_pod = workload.path == pod.path
    roots = [(pod, _POD)] if is_pod else [(workload, _OBJECT), (pod, _TEMPLATE)]
    for path, kind in islice(_unknown(roots), _MAX_FOUND):
        field = replace(pod, plain=None, path=path)
        yield (
            f"{field.source}: field {field.words} is unknown to Kubernetes: kubectl refuses it, and"
            f" other clients lose it. {_fix(kind, str(path[-1]))}."
        )


def _unknown(roots: Iterable[tuple[Value, str]]) -> Iterator[tuple[Path, str]]:
    """Yield the path of each unknown field, and the type that has no such field."""
    types = {**_TYPES, **pod_fields()}
    pending: list[tuple[Path, object, str]] = [
        (root.path, root.plain, kind) for root, kind in reversed([*roots])
    ]
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


def _fix(kind: str, field: str) -> str:
    """Return what to do about an unknown field of a type."""
    if key := right_place(field):
        return f"Write {key}"
    fields = _TYPES.get(kind) or pod_fields()[kind]
    near = get_close_matches(field[:_MAX_LENGTH], fields, 1, _SIMILARITY)
    meant = _MEANT.get((kind, field)) or next(iter(near), None)
    return f"Write {meant}" if meant else "Remove it"
