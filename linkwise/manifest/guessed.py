"""Find the pod templates of an object of an unknown kind by their shape.

A pod template is a map whose `spec` has a list of containers, or one of the other shapes
(`pod_shapes`). The number of its pods is that of `replicas` or `parallelism` beside it.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from linkwise.cluster.objects.pod import PodSpec
from linkwise.cluster.objects.quantity import QuantityError, whole
from linkwise.manifest.pod_shapes import shape_of
from linkwise.manifest.template import Head, PodTemplate
from linkwise.manifest.value import Value
from linkwise.workloads.gang_owner import GangOwner
from linkwise.workloads.kinds.stamps import numbered
from linkwise.workloads.pod_set import PodSet

TEMPLATES_MAX = 64
"""Templates that are looked at; an operator has a few."""
_COUNTS = ("replicas", "parallelism")
_MEANINGLESS = frozenset({"spec", "template", "podTemplate", "jobTemplate"})
"""Keys that do not distinguish the templates of an object."""
_OTHERS = frozenset({"metadata", "status"})
"""Keys whose values have no templates that pods are made of."""


def guessed_templates(document: Value, namespace: str) -> tuple[PodTemplate, ...]:
    """Return the pod templates that an object of an unknown kind seems to have; maybe none.

    Args:
        document: A Kubernetes object.
        namespace: Its namespace if it names none.

    Returns:
        At most `TEMPLATES_MAX` and one more, by which the caller sees that not all are there.

    Raises:
        InputError: The object has no name.

    Cost: linear in the object.
    """
    found = list(islice(_templates(document), TEMPLATES_MAX + 1))
    return tuple(_guessed(Head.of(document, namespace), *pair) for pair in found)


def _guessed(job: Head, template: Value, parent: Value | None) -> PodTemplate:
    words = [step for step in template.path if step not in _MEANINGLESS]
    role = "-".join(map(str, words)).lower() or None
    stem = f"{job.owner.name}-{role}" if role else job.owner.name
    kind = job.owner.kind
    note = f"{kind} is not known: the pods of {template.words} are guessed by their shape"
    # The spec may not be that of a pod.
    path = template.path[len(job.document.path) :]
    shape = None if _is_template(_map(template)) else shape_of(_key(template), _map(template))
    count = shape.pods if shape and shape.pods is not None else _count(parent)
    made: dict[str, object] | None = {"spec": shape.spec} if shape else None
    pods = PodSet(path, PodSpec(), count, numbered(stem), role, note=note, made_template=made)
    return replace(job.template(pods, GangOwner(kind, job.owner.name)), is_guessed=True)


def _templates(document: Value) -> Iterator[tuple[Value, Value | None]]:
    """Yield the templates of a document in its order, each with the map that it is in."""
    pending: list[tuple[Value, Value | None]] = [(document, None)]
    while pending:
        value, parent = pending.pop()
        if isinstance(value.plain, list):
            pending += ((item, parent) for item in reversed(value.items()))
        elif isinstance(value.plain, dict) and _is_template(value.plain):
            yield value, parent
        elif isinstance(value.plain, dict) and value.path and shape_of(_key(value), value.plain):
            yield value, parent
            if workers := value.child("workerSpec"):
                pending.append((workers, value))
        elif isinstance(value.plain, dict):
            names = [key for key in value.plain if isinstance(key, str) and key not in _OTHERS]
            children = filter(None, map(value.child, reversed(names)))
            pending += ((child, value) for child in children)


def _map(value: Value) -> dict[str, object]:
    return value.plain if isinstance(value.plain, dict) else {}


def _key(value: Value) -> str:
    """Return the last key on the way to a value; empty for an item of a list without one."""
    return next((step for step in reversed(value.path) if isinstance(step, str)), "")


def _is_template(plain: dict[str, object]) -> bool:
    spec = plain.get("spec")
    containers = spec.get("containers") if isinstance(spec, dict) else None
    return isinstance(containers, list) and any(isinstance(one, dict) for one in containers)


def _count(parent: Value | None) -> int:
    counts = (parent.child(key) for key in _COUNTS) if parent else ()
    for count in counts:
        if count is not None and isinstance(count.plain, int | str):
            try:
                return max(whole(count.plain) or 0, 0)
            except QuantityError:
                continue
    return 1
