"""Expand workloads into the pod templates of their controllers."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from msgspec import Struct

from linkwise.cluster import keys
from linkwise.cluster.gang import gang_mark
from linkwise.manifest.claim_form import check_claim_form
from linkwise.manifest.guessed import TEMPLATES_MAX, guessed_templates
from linkwise.manifest.lines import without_nulls
from linkwise.manifest.misplaced import misplaced
from linkwise.manifest.template import Head, PodTemplate
from linkwise.manifest.typed import read_as
from linkwise.manifest.unknown_fields import unknown_fields
from linkwise.manifest.value import InputError, Value
from linkwise.workloads.gang_owner import GangOwner
from linkwise.workloads.kind import Kind, Workload
from linkwise.workloads.kinds.trainer_version import merges_resources
from linkwise.workloads.members import members_of, ordered_start, sufficient_of
from linkwise.workloads.pod_set import Path, PodSet
from linkwise.workloads.registry import kind_of

_SPARK = "sparkoperator.k8s.io"
"""A group of an operator that is no part of Kubernetes, unlike others of this domain."""
NO_PODS = "no pods are described in these files; name Pods or workloads."
"""The warning if no object has a pod template."""
_COUNTS = (
    "replicas",
    "minReplicas",
    "numOfHosts",
    "parallelism",
    "completions",
    "size",
    "numNodes",
)
"""Fields that have a number of pods, in all kinds."""


class Unjudged(Struct, frozen=True, rename={"api_version": "apiVersion"}):
    """An object of an unknown kind, which may create pods."""

    source: str
    """`file:line`."""
    api_version: str
    kind: str
    name: str
    """Empty if it has none."""
    reason: str

    @property
    def sentence(self) -> str:
        """One line for people."""
        return f"{self.source}: {self.kind} ({self.api_version}) {self.reason}."


class Expansion(NamedTuple):
    """Pod templates of some objects."""

    templates: tuple[PodTemplate, ...]
    unjudged: tuple[Unjudged, ...]
    """Objects of unknown kinds that may create pods."""
    warnings: tuple[str, ...]
    """Assumptions about the other objects."""
    invalid: tuple[str, ...]
    """Why the API of Kubernetes would reject the rest: a line for each object."""


class Bases(NamedTuple):
    """Objects that may have pod templates of others."""

    objects: tuple[Value, ...] = ()
    merges: bool | None = None
    """Whether resources of a TrainJob are merged with theirs; None: it is not known."""

    @classmethod
    def of(cls, objects: Iterable[Value]) -> "Bases":
        """Return those among some objects."""
        everything = tuple(objects)
        found = tuple(one for one in everything if _is_base(one))
        return cls(found, merges_resources(one.plain for one in everything) if found else None)


def expanded(objects: Sequence[Value], namespace: str, others: Sequence[Value] = ()) -> Expansion:
    """Return the pod templates of objects, the objects of unknown kinds, and invalid objects.

    Args:
        objects: Kubernetes objects.
        namespace: The namespace of objects that name none.
        others: Other objects, which may have pod templates of these.
    """
    bases = Bases.of((*objects, *others))
    templates: list[PodTemplate] = []
    unjudged: list[Unjudged] = []
    invalid: list[str] = []
    without_effect: list[str] = []
    for value in objects:
        try:
            check_claim_form(value)
            made, left_out = _templates_or_guesses(value, namespace, bases)
            for template in made:
                template.read(template.pod())
        except InputError as error:
            invalid.append(str(error))
        else:
            templates += made
            unjudged += left_out
            for one in made:
                if one.is_written:
                    without_effect += misplaced(value, one)
                    if not one.is_guessed:
                        without_effect += unknown_fields(value, one)
    warnings = [f"{one.value.source}: {one.note}." for one in templates if one.note]
    warnings += dict.fromkeys(without_effect)
    return Expansion(tuple(templates), tuple(unjudged), tuple(warnings), tuple(invalid))


def _templates_or_guesses(
    value: Value, namespace: str, bases: Bases
) -> tuple[tuple[PodTemplate, ...], tuple[Unjudged, ...]]:
    """Return the pod templates of one object; and itself, as far as it is not judged."""
    made = templates_of(value, namespace, bases)
    if made is not None:
        return made, ()
    if not may_make_pods(value):
        return (), ()
    guessed = guessed_templates(value, namespace)
    if not guessed:
        return (), (_unjudged(value, "was not looked at"),)
    if len(guessed) <= TEMPLATES_MAX:
        return guessed, ()
    reason = f"was looked at in part: it has more than {TEMPLATES_MAX} pod templates"
    return guessed[:TEMPLATES_MAX], (_unjudged(value, reason),)


def _unjudged(value: Value, reason: str) -> Unjudged:
    version, kind = value.need("apiVersion").text(), value.need("kind").text()
    metadata = value.child("metadata")
    name = metadata.mapping().get("name") if metadata else None
    return Unjudged(value.source, version, kind, str(name or ""), reason)


def templates_of(
    document: Value, namespace: str, bases: Bases | None = None
) -> tuple[PodTemplate, ...] | None:
    """Return the pod templates of a document; None if its kind is unknown here.

    Args:
        document: A Kubernetes object.
        namespace: Its namespace if it names none.
        bases: Objects that may have pod templates of it.

    Raises:
        InputError: The API of the workload would reject it.
    """
    kind = _kind(document)
    if kind is None:
        return None
    if kind.is_base:
        return ()
    head = Head.of(document, namespace)
    document.need("spec").mapping()
    workload = _read(kind, document)
    for path in workload.required:
        document.follow(path)
    known = bases or Bases()
    base, found = None, _base_of(workload, head.namespace, known.objects)
    if found is not None:
        kind_of_base, base = found
        workload = workload.on(_read(kind_of_base, base), known.merges)
    sets = workload.pod_sets()
    owner = GangOwner(
        head.owner.kind,
        head.owner.name,
        members_of(workload) if kind.sized else None,
        starts_with=sufficient_of(workload) if kind.sized else None,
        rolled_out=workload.rolled_out,
        fails_when_evicted=workload.fails_when_evicted,
    )
    templates = tuple(head.template(pods, owner, base) for pods in sets)
    for pods in sets:
        _check_numbers(base if base and pods.is_of_base else document, pods.path)
    return _ordered(templates, kind, workload) if workload.starts_in_order else templates


def _read(kind: Kind, document: Value) -> Workload:
    return read_as(kind.shape, without_nulls(document.mapping()), document)


def _kind(document: Value) -> Kind | None:
    api_version, name = document.need("apiVersion").text(), document.need("kind").text()
    kind = kind_of(api_version, name)
    return kind if kind and kind.knows(api_version) else None


def _is_base(document: Value) -> bool:
    """Return whether workloads may take their pod templates from a document."""
    plain = document.plain if isinstance(document.plain, dict) else {}
    kind = kind_of(str(plain.get("apiVersion")), str(plain.get("kind")))
    return kind is not None and kind.is_base


def _base_of(
    workload: Workload, namespace: str, bases: Iterable[Value]
) -> tuple[Kind, Value] | None:
    """Return the object that has pod templates of a workload in a namespace, and its kind."""
    sought = workload.base
    if sought is None:
        return None
    for one in bases:
        head, kind = Head.of(one, namespace), _kind(one)
        is_near = not sought.is_namespaced or head.namespace == namespace
        if kind and (kind.group, kind.name, head.owner.name) == sought[:3] and is_near:
            return kind, one
    return None


def _check_numbers(document: Value, path: Path) -> None:
    """Raise an error for a number of pods on a path that is negative, which an API rejects."""
    value: Value | None = document
    for step in (*path, ""):
        if value is None or not isinstance(value.plain, dict | list):
            return
        if isinstance(step, int):
            value = value.item(step)
            continue
        for key in _COUNTS:
            if count := value.child(key):
                count.whole()
        value = value.child(step)


def _ordered(
    templates: tuple[PodTemplate, ...], kind: Kind, workload: Workload
) -> tuple[PodTemplate, ...]:
    """Return templates of which those of each gang know whether they wait for each other."""
    gangs: dict[str, list[PodSet]] = {}
    for one in templates:
        if one.replicas and one.pods.request:
            gangs.setdefault(_gang(one), []).append(one.pods)
    starts = {
        id(pods): ordered_start(kind, workload, sets) for sets in gangs.values() for pods in sets
    }
    return tuple(
        replace(one, workload=replace(one.workload, ordered=starts.get(id(one.pods))))
        for one in templates
    )


def _gang(template: PodTemplate) -> str:
    """Return the gang of the first pod of a template; empty without a mark."""
    mark, _ = gang_mark(template.read(template.pod()))
    return mark.name if mark else ""


def may_make_pods(document: Value) -> bool:
    """Return whether a document of a kind that is not expanded here may create pods.

    Built-in kinds do not; any other kind may.
    """
    group = document.need("apiVersion").text().rpartition("/")[0]
    if group == _SPARK:
        return True
    is_kubernetes = "." not in group or (group.endswith(".k8s.io") and ".x-k8s." not in group)
    return not is_kubernetes and group != keys.API_VERSION.partition("/")[0]
