"""Find keys of GPU requests where they have no effect, in workloads of files. Pure.

Admission sees pods only; so it cannot report these.
"""

from collections.abc import Iterator
from difflib import get_close_matches
from functools import lru_cache
from itertools import islice

from cluster import keys
from manifest.template import PodTemplate
from manifest.value import Value

_CLASS_LABELS = (keys.COMPUTE_QOS, keys.MODEL_SERIES, keys.DRIVER_VERSION)
"""Labels that have an effect beside a compute class only."""
_LABELS = (
    keys.COMPUTE_CLASS,
    *_CLASS_LABELS,
    keys.GPU_COUNT,
    keys.POD_GROUP,
    keys.POD_GROUP_NAME,
    keys.POD_GROUP_MIN_AVAILABLE,
)
_PLACES = {
    **dict.fromkeys(_LABELS, ("labels",)),
    **dict.fromkeys((keys.GANG_SIZE, keys.LINK), ("annotations",)),
    # As a label it takes the pods of a job out.
    keys.GANG: ("annotations", "labels"),
    **dict.fromkeys(keys.RESOURCES, ("resources",)),
}
"""By key of GPU requests: where it has an effect on a pod; the first place is named."""
_NAMES = {
    "labels": "among the labels",
    "annotations": "among the annotations",
    "resources": "in resources.limits of a container",
}
_SIMILARITY = 0.94
"""Minimum similarity of a misspelt key: about one letter differs."""
_MAX_LENGTH = 64
_MAX_KEYS = 64
"""Keys of one map that are looked at; a pod has a few."""


def misplaced(workload: Value, template: PodTemplate) -> Iterator[str]:
    """Yield a warning for each key without effect: its place, and where to write it.

    Args:
        workload: The object that has the template; a Pod is its own template.
        template: One of its pod templates.

    Cost: at most some milliseconds.
    """
    value = template.value
    if value.path != workload.path:
        yield from _of_workload(workload, value)
    metadata = _child(value, "metadata")
    for part in ("labels", "annotations"):
        for key in _keys(metadata, part):
            if (meant := _meant(key)) and not (key.path[-1] == meant and part in _PLACES[meant]):
                yield _without_effect(key, part, meant)
    labels = {str(key.path[-1]): key for key in _keys(metadata, "labels")}
    if keys.COMPUTE_CLASS not in labels:
        for name in _CLASS_LABELS:
            if label := labels.get(name):
                yield (
                    f"{label.source}: label {name} has an effect beside {keys.COMPUTE_CLASS} only. "
                    "Write this label, too, unless a profile adds it."
                )


def _without_effect(key: Value, part: str, meant: str) -> str:
    """Return the warning about a key of a pod template that is misspelt, or in the wrong place."""
    if part in _PLACES[meant]:
        return f"{key.source}: {part[:-1]} {key.path[-1]} is not known. Write {meant}."
    where = _NAMES[_PLACES[meant][0]]
    return f"{key.source}: {part[:-1]} {key.path[-1]} has no effect. Write {meant} {where}."


def _of_workload(workload: Value, template: Value) -> Iterator[str]:
    """Yield a warning for each key on the workload itself, which its pods do not get."""
    metadata, own = _child(workload, "metadata"), _child(template, "metadata")
    for part in ("labels", "annotations"):
        for key in _keys(metadata, part):
            meant = _meant(key)
            if meant is None:
                continue
            place = part if part in _PLACES[meant] else _PLACES[meant][0]
            if meant in (str(each.path[-1]) for each in _keys(own, place)):
                continue
            is_resource = place == "resources"
            at = template.at("spec.containers" if is_resource else f"metadata.{place}").words
            where = f"{at}: resources.limits" if is_resource else at
            yield (
                f"{key.source}: {part[:-1]} {key.path[-1]} has no effect here: pods do not get "
                f"it. Write {meant} in {where}."
            )


def _child(value: Value | None, key: str) -> Value | None:
    return value.child(key) if value is not None and isinstance(value.plain, dict) else None


def _keys(metadata: Value | None, part: str) -> Iterator[Value]:
    """Yield the places of the keys of a map."""
    found = _child(metadata, part)
    if found is None or not isinstance(found.plain, dict):
        return
    for key in islice(found.plain, _MAX_KEYS):
        if place := found.child(key):
            yield place


def _meant(key: Value) -> str | None:
    """Return the known key that a key is, or probably means."""
    name = str(key.path[-1])
    return _near(name) if "/" in name and len(name) <= _MAX_LENGTH else None


@lru_cache(maxsize=1024)
def _near(key: str) -> str | None:
    return next(iter(get_close_matches(key.lower(), _PLACES, 1, _SIMILARITY)), None)
