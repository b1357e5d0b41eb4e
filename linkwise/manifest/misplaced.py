"""Find keys of GPU requests where they have no effect, in workloads of files. Pure.

Admission sees pods only; so it cannot report these.
"""

from collections.abc import Iterator
from difflib import get_close_matches
from functools import lru_cache
from itertools import islice

from linkwise.cluster import keys
from linkwise.manifest.template import PodTemplate
from linkwise.manifest.value import Value

_CLASS_LABELS = (keys.COMPUTE_QOS, keys.MODEL_SERIES, keys.DRIVER_VERSION)
"""Labels that have an effect beside a compute class only."""
_LABELS = (
    keys.COMPUTE_CLASS,
    *_CLASS_LABELS,
    keys.GPU_COUNT,
    keys.POD_GROUP,
    keys.POD_GROUP_NAME,
    keys.POD_GROUP_MIN_AVAILABLE,
    keys.GPU_TOPOLOGY_REPLICA,
)
_ANNOTATIONS = (
    keys.GANG_SIZE,
    keys.LINK,
    keys.KOORDINATOR_GANG_NAME,
    keys.KOORDINATOR_GANG_MIN_AVAILABLE,
)
_ON_NODES = (keys.MODEL_SERIES, keys.DRIVER_VERSION)
"""Labels that nodes may have, too."""
_PLACES = {
    **dict.fromkeys(_LABELS, ("labels",)),
    **dict.fromkeys(_ANNOTATIONS, ("annotations",)),
    # As a label it takes the pods of a job out.
    keys.GANG: ("annotations", "labels"),
    **dict.fromkeys(keys.RESOURCES, ("resources",)),
    **dict.fromkeys(keys.MODE_LABELS, ("nodeSelector",)),
}
"""By key of GPU requests: where it has an effect on a pod; the first place is named."""
_NAMES = {
    "labels": "among the labels",
    "annotations": "among the annotations",
    "resources": "in resources.limits of a container",
    "nodeSelector": "in spec.nodeSelector",
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
    for key in _keys(_child(value, "spec"), "nodeSelector"):
        name = str(key.path[-1])
        if name in _PLACES and name not in (*_ON_NODES, *keys.MODE_LABELS):
            where = _right_place(name)
            yield f"{key.source}: nodeSelector {name} only selects nodes by labels. Write {where}."
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
    return f"{key.source}: {part[:-1]} {key.path[-1]} has no effect. Write {_right_place(meant)}."


def right_place(key: str) -> str | None:
    """Return the known key that a key is or probably means, with its place; None: it is none."""
    meant = _known(key)
    return _right_place(meant) if meant else None


def _right_place(meant: str) -> str:
    return f"{meant} {_NAMES[_PLACES[meant][0]]}"


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
            yield (
                f"{key.source}: {part[:-1]} {key.path[-1]} has no effect here: pods do not get "
                f"it. Write {meant} in {_path(template, place)}."
            )


def _path(template: Value, place: str) -> str:
    """Return the path of a place in a pod template."""
    match place:
        case "resources":
            return f"{template.at('spec.containers').words}: resources.limits"
        case "nodeSelector":
            return template.at("spec.nodeSelector").words
        case _:
            return template.at(f"metadata.{place}").words


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
    return _known(str(key.path[-1]))


def _known(name: str) -> str | None:
    if name in _PLACES:
        return name
    return _near(name) if "/" in name and len(name) <= _MAX_LENGTH else None


@lru_cache(maxsize=1024)
def _near(key: str) -> str | None:
    return next(iter(get_close_matches(key.lower(), _PLACES, 1, _SIMILARITY)), None)
