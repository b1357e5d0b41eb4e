"""The data types of a kind of workload, and of its objects."""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from msgspec.json import Decoder

from linkwise.cluster.finding import Code
from linkwise.cluster.objects.kube_object import KubeObject, Labels
from linkwise.cluster.objects.metadata import Owner
from linkwise.workloads.pod_set import Path, PodSet
from linkwise.workloads.state import OwnerState, Status


class _Metadata(KubeObject, frozen=True):
    name: str = ""
    generate_name: str = ""
    uid: str = ""
    annotations: Labels | None = None
    owner_references: list[Owner] | None = None


class Base(NamedTuple):
    """The name of an object that has pod templates of a workload."""

    group: str
    kind: str
    name: str
    is_namespaced: bool
    """It is in the namespace of the workload; else in none."""


class Workload(KubeObject, frozen=True):
    """An object whose controller creates pods. Each kind has a type below this one."""

    api_version: str = ""
    metadata: _Metadata = _Metadata()
    status: Status = Status()

    @property
    def name(self) -> str:
        """Its name; a generated name ends with `xxxxx` while it is unknown."""
        return self.metadata.name or f"{self.metadata.generate_name}xxxxx"

    @property
    def owners(self) -> list[Owner]:
        """The objects that own it."""
        return self.metadata.owner_references or []

    @property
    def required(self) -> tuple[Path, ...]:
        """Fields without which the API rejects the object, beside those of its templates."""
        return ()

    @property
    def base(self) -> Base | None:
        """The object that has pod templates of it; None: it has all itself."""
        return None

    def on(self, _base: "Workload", _merges: bool | None = None, /) -> "Workload":
        """Return the workload with the pod templates of its base.

        Args:
            base: The object that has them.
            merges: Its resources are merged with those of the base; None: it is not known.
        """
        return self

    def pod_sets(self) -> tuple[PodSet, ...]:
        """Return its pods, without those of a base that is not known."""
        return ()

    @property
    def min_members(self) -> int | None:
        """Number of pods with GPUs that suffice to start; None: it needs all."""
        return None

    @property
    def starts_in_order(self) -> bool:
        """It makes some of its pods only when others are ready; `Kind.ordered` says which."""
        return False

    @property
    def rolled_out(self) -> int | None:
        """How many pods of a new revision it makes before they run; None: all, or it has none."""
        return None

    @property
    def fails_when_evicted(self) -> bool:
        """It counts an evicted pod as a failure."""
        return False

    @property
    def is_suspended(self) -> bool:
        """It makes no pods for now."""
        return False

    @property
    def state(self) -> OwnerState:
        """Whether it makes pods."""
        if outcome := self.status.outcome:
            return outcome
        return OwnerState.SUSPENDED if self.is_suspended else OwnerState.ACTIVE


class OrderedStart(NamedTuple):
    """What it means that a kind starts some pods after others."""

    code: Code
    """Of the finding."""
    late: str
    """The pods that are created late, and when; "makes" precedes it."""
    setting: str
    """The setting with which all pods are created at once."""
    within_a_set: bool = False
    """The pods of one set start one after the other; else those of different sets."""


class Through(NamedTuple):
    """The controller of a pod that a workload made: its label on the pod names the workload."""

    group: str
    kind: str
    label: str


class Index(NamedTuple):
    """A label of a pod, or an annotation, by which the controller of a kind numbers its pods."""

    key: str
    is_annotation: bool = False


@dataclass(frozen=True)
class Kind:
    """A kind of workload."""

    group: str
    """API group; empty for Kubernetes' first one."""
    name: str
    """The kind, such as `JobSet`."""
    shape: type[Workload]
    """Type of its objects."""
    plural: str | None = None
    """Its resource, by which the planner reads the number of pods; None: the planner reads it of
    another object."""
    versions: tuple[str, ...] = ()
    """The versions that are known here; empty where all have the same fields."""
    sized: bool = True
    """Its pods with GPUs together are one gang, if any."""
    gang: str | None = None
    """Name in policy `gangs.kinds`; None: its pods are a gang by their marks only."""
    through: tuple[Through, ...] = ()
    """Controllers of its pods other than itself."""
    indices: tuple[Index, ...] = ()
    """Where the number of a pod is, the first one first; without any, in its name."""
    ordered: OrderedStart | None = None
    may_shrink: bool = False
    """It may be elastic: it goes on running without some of its pods (`PodSet.least`)."""
    is_base: bool = False
    """It makes no pods; workloads take their pod templates from it."""

    def knows(self, api_version: str) -> bool:
        """Return whether the pods of this version are known here."""
        return not self.versions or api_version.rpartition("/")[2] in self.versions

    @cached_property
    def decoder(self) -> Decoder[Workload]:
        """Decodes objects of the kind from JSON."""
        return Decoder(self.shape)
