"""Pod templates of workloads in files, and the pods that controllers create from them."""

from dataclasses import dataclass, replace
from uuid import NAMESPACE_OID, uuid5

from linkwise.cluster.objects.metadata import Owner
from linkwise.cluster.objects.pod import Pod
from linkwise.manifest.lines import without_nulls
from linkwise.manifest.typed import read_as
from linkwise.manifest.value import Value
from linkwise.workloads.gang_owner import GangOwner
from linkwise.workloads.pod_set import Change, Made, Marks, PodSet, Stamp


@dataclass(frozen=True, slots=True)
class PodTemplate:
    """One pod template of a workload, and its pods. A bare pod is its own template."""

    value: Value
    """The template in its file; paths of pod fields are relative to it."""
    source: str
    """`file:line` of the workload."""
    workload: GangOwner
    """The fields of the workload that admission reads; a bare pod is its own workload."""
    namespace: str
    pods: PodSet
    owners: tuple[Owner, ...] = ()
    """Owners of the pods, nearest first; empty for a bare pod."""
    note: str | None = None
    """A note to users: how these pods differ from those in a cluster."""
    is_guessed: bool = False
    """The kind of the workload is not known here, so its spec may not be that of a pod."""

    @property
    def is_written(self) -> bool:
        """It is in the workload itself; else in another object, or made by the controller."""
        return self.pods.made_template is None and not self.pods.is_of_base

    @property
    def role(self) -> str | None:
        """`worker`, `launcher`, `master`; None where the workload has one template."""
        return self.pods.role

    @property
    def replicas(self) -> int:
        """Number of pods; a suspended workload counts as if it were running."""
        return self.pods.total

    @property
    def stamp(self) -> Stamp:
        """Returns the metadata of the i-th pod."""
        return self.pods.stamp

    def pod(self, index: int = 0) -> dict[str, object]:
        """Return the i-th pod as its controller creates it; read-only, since it shares values.

        Raises:
            InputError: The metadata or the spec of the template is not a map.
        """
        marks, pods = self.stamp(index), self.pods
        spec = without_nulls(self.value.need("spec").mapping())
        if pods.change:
            spec["containers"] = _changed(spec.get("containers"), pods.change)
        if pods.scheduler:
            spec = {"schedulerName": pods.scheduler, **spec}
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

    def template(self, pods: PodSet, workload: GangOwner, base: Value | None = None) -> PodTemplate:
        """Return the template of pods that this workload owns, or one of its objects.

        Args:
            pods: The pods.
            workload: The fields of the workload that admission reads.
            base: The other object that has templates of the workload.

        Raises:
            InputError: The template is missing.
        """
        document = base if base and pods.is_of_base else self.document
        if pods.made_template is None:
            value = document.follow(pods.path)
        else:
            path = (*document.path, *pods.path)
            value = replace(document, plain=pods.made_template, path=path)
        value.need("spec").mapping()
        return PodTemplate(
            value=value,
            source=self.document.source,
            workload=workload,
            namespace=self.namespace,
            pods=pods,
            owners=() if self.owner.kind == "Pod" else (*map(self._owner, pods.made), self.owner),
            note=pods.note,
        )

    def _owner(self, made: Made) -> Owner:
        """Return an object between the pods and the workload, as an owner."""
        kind, api_version, name = made
        uid = str(uuid5(NAMESPACE_OID, f"{kind} {name} {self.owner.uid}"))
        return Owner(api_version=api_version, kind=kind, name=name, uid=uid, controller=True)


def _changed(containers: object, change: Change) -> object:
    if not isinstance(containers, list) or not all(isinstance(one, dict) for one in containers):
        return containers
    return change(containers) if containers else containers


def _reference(owner: Owner) -> dict[str, object]:
    return {
        "apiVersion": owner.api_version,
        "kind": owner.kind,
        "name": owner.name,
        "uid": owner.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
