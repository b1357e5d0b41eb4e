"""Pod templates of workloads, and the pods that controllers create from them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias
from uuid import NAMESPACE_OID, uuid5

from cluster.gang_owner import Workload
from cluster.keys import (
    BATCH_JOB_NAME,
    BATCH_JOB_NAME_OLD,
    STATEFULSET_POD_INDEX,
    STATEFULSET_POD_NAME,
)
from cluster.pod import Owner, Pod
from cluster.request import Request, read_request
from manifest.lines import without_nulls
from manifest.typed import read_as
from manifest.value import Value


class Marks(NamedTuple):
    """The metadata that a controller sets on one of its pods."""

    name: str
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}


Stamp: TypeAlias = Callable[[int], Marks]
"""Returns the metadata of the i-th pod."""

Change: TypeAlias = Callable[[dict[str, object]], dict[str, object]]
"""Returns a container as the controller changes it."""


@dataclass(frozen=True, slots=True)
class PodTemplate:
    """One pod template of a workload, and its pods. A bare pod is its own template."""

    value: Value
    """The template in its file; paths of pod fields are relative to it."""
    source: str
    """`file:line` of the workload."""
    workload: Workload
    """The fields of the workload that admission reads; a bare pod is its own workload."""
    namespace: str
    role: str | None
    """`worker`, `launcher`, `master`; None where the workload has one template."""
    replicas: int
    """Number of pods; a suspended workload counts as if it were running."""
    stamp: Stamp
    owners: tuple[Owner, ...] = ()
    """Owners of the pods, nearest first; empty for a bare pod."""
    change: Change | None = None
    """Change that the controller applies to the first container."""
    note: str | None = None
    """A note to users: how these pods differ from those in a cluster."""
    is_guessed: bool = False
    """The kind of the workload is not known here, so its spec may not be that of a pod."""
    scheduler: str | None = None
    """The scheduler that the controller writes if the template names none."""
    is_late: bool = False
    """The pods are made once the others are ready. They are planned with these if they ask for GPUs
    in the same way, and for no more."""

    def pod(self, index: int = 0) -> dict[str, object]:
        """Return the i-th pod as its controller creates it; read-only, since it shares values.

        Raises:
            InputError: The metadata or the spec of the template is not a map.
        """
        marks = self.stamp(index)
        spec = without_nulls(self.value.need("spec").mapping())
        if self.change:
            spec["containers"] = _first_changed(spec.get("containers"), self.change)
        if self.scheduler:
            spec = {"schedulerName": self.scheduler, **spec}
        made: dict[str, object] = {"apiVersion": "v1", "kind": "Pod"}
        return {**made, "metadata": self._metadata(marks), "spec": spec}

    def _metadata(self, marks: Marks) -> dict[str, object]:
        written = self.value.child("metadata")
        made = without_nulls(written.mapping()) if written else {}
        made |= {"name": marks.name, "namespace": self.namespace}
        for key, added in (("labels", marks.labels), ("annotations", marks.annotations)):
            own = written.child(key) if written else None
            if own or added:
                made[key] = {**(own.texts() if own else {}), **added}
        if self.owners:
            made["ownerReferences"] = [_reference(self.owners[0])]
        return made

    def read(self, pod: dict[str, object]) -> Pod:
        """Return one of its pods as Linkwise reads it.

        Raises:
            InputError: A field has a type that Kubernetes rejects.
        """
        return read_as(Pod, pod, self.value)


@dataclass(frozen=True, slots=True)
class Head:
    """Identity of a workload: name, namespace and owner reference."""

    document: Value
    namespace: str
    owner: Owner
    """The owner reference in its pods."""

    @classmethod
    def of(cls, document: Value, namespace: str) -> "Head":
        """Read the head of a workload; `namespace` applies if it names none itself."""
        metadata = document.need("metadata")
        given, prefix = metadata.child("name"), metadata.child("generateName")
        if given is None and prefix is None:
            raise metadata.error("metadata.name is missing; add it.")
        name = given.text() if given else f"{prefix.text() if prefix else ''}xxxxx"
        home, uid = metadata.child("namespace"), metadata.child("uid")
        kind, api_version = document.need("kind").text(), document.need("apiVersion").text()
        owner = Owner(
            api_version=api_version,
            kind=kind,
            name=name,
            # Two objects of one name, made from one generateName, stay two.
            uid=uid.text() if uid else str(uuid5(NAMESPACE_OID, f"{kind} {document.source}")),
            controller=True,
        )
        return cls(document, home.text() if home else namespace, owner)

    @property
    def name(self) -> str:
        """The workload's name."""
        return self.owner.name

    @property
    def spec(self) -> Value:
        """The workload's spec."""
        spec = self.document.need("spec")
        spec.mapping()
        return spec

    def template(self, value: Value, role: str | None, replicas: int, stamp: Stamp) -> PodTemplate:
        """Return a template whose pods this workload owns."""
        value.need("spec").mapping()
        return PodTemplate(
            value=value,
            source=self.document.source,
            workload=Workload(self.owner.kind, self.owner.name),
            namespace=self.namespace,
            role=role,
            replicas=replicas,
            stamp=stamp,
            owners=(self.owner,),
        )

    def made(self, kind: str, api_version: str, name: str) -> Owner:
        """Return an intermediate object that a controller creates, which owns the pods."""
        uid = str(uuid5(NAMESPACE_OID, f"{kind} {name} {self.owner.uid}"))
        return Owner(api_version=api_version, kind=kind, name=name, uid=uid, controller=True)


def placed_request(template: PodTemplate) -> Request | None:
    """Return the GPU request of a template's pods that Linkwise may choose; None: there is none."""
    request, _ = read_request(template.read(template.pod()))
    return request if request.family is not None else None


def is_placed(template: PodTemplate) -> bool:
    """Return whether the pods of a template request GPUs that Linkwise may choose."""
    return placed_request(template) is not None


def number_of(spec: Value, key: str, default: int) -> int:
    """Return the whole number under a key; the default if it is absent."""
    child = spec.child(key)
    return child.whole() if child else default


def is_set(spec: Value, key: str) -> bool:
    """Return whether the flag under a key is set."""
    child = spec.child(key)
    return child.true() if child else False


def numbered(
    stem: str, labels: Mapping[str, str], index_label: str | None = None, shift: int = 0
) -> Stamp:
    """Return the stamp of pods `<stem>-<i>`, optionally with a label of value i plus a shift."""

    def stamp(index: int) -> Marks:
        ordinal = {index_label: str(index + shift)} if index_label else {}
        return Marks(f"{stem}-{index}", {**labels, **ordinal})

    return stamp


def ordinal(stem: str, labels: Mapping[str, str]) -> Stamp:
    """Return the stamp of a StatefulSet's pods."""

    def stamp(index: int) -> Marks:
        name = f"{stem}-{index}"
        own = {STATEFULSET_POD_NAME: name, STATEFULSET_POD_INDEX: str(index)}
        return Marks(name, {**labels, **own})

    return stamp


def batch_labels(name: str) -> dict[str, str]:
    """Return the labels of a batch Job's pods."""
    return {BATCH_JOB_NAME: name, BATCH_JOB_NAME_OLD: name}


def _first_changed(containers: object, change: Change) -> object:
    if not isinstance(containers, list) or not containers:
        return containers
    first, *others = containers
    return [change(first) if isinstance(first, dict) else first, *others]


def _reference(owner: Owner) -> dict[str, object]:
    return {
        "apiVersion": owner.api_version,
        "kind": owner.kind,
        "name": owner.name,
        "uid": owner.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
