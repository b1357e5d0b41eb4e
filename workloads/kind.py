"""The data types of a kind of workload, of its objects and of their pods."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import NamedTuple, TypeAlias

from msgspec.json import Decoder

from cluster.finding import Code
from cluster.kube_object import KubeObject
from cluster.pod import Owner, Pod, PodSpec
from cluster.request import Request, read_request

Path: TypeAlias = tuple[str | int, ...]
"""Keys and indices from an object to a field."""


class Marks(NamedTuple):
    """The metadata that a controller sets on one of its pods."""

    name: str
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}


Stamp: TypeAlias = Callable[[int], Marks]
"""Returns the metadata of the i-th pod."""

Container: TypeAlias = dict[str, object]
Change: TypeAlias = Callable[[list[Container]], list[Container]]
"""Returns the containers of a pod as the controller changes them."""


class Made(NamedTuple):
    """An object that a controller creates between a workload and its pods."""

    kind: str
    api_version: str
    name: str


@dataclass(frozen=True, slots=True)
class PodSet:
    """The pods of one template."""

    path: Path
    """Of the template in the object, or of the field of which the controller makes it; empty where
    the object is the pod itself."""
    spec: PodSpec
    """Of the template, with the fields that placement reads."""
    count: int
    """Pods of one group; a suspended workload counts as if it were running."""
    stamp: Stamp
    role: str | None = None
    """`worker`, `launcher`, `master`; None where the workload has one template."""
    prefix: str | None = None
    """Name of its pods before `-0` and the following numbers; None: it is unknown."""
    groups: int = 1
    """Number of groups, each of which is a gang."""
    made: tuple[Made, ...] = ()
    """Objects between the pods and the workload, nearest first."""
    change: Change | None = None
    """Change that the controller applies to the containers."""
    scheduler: str | None = None
    """The scheduler that the controller writes if the template names none."""
    is_late: bool = False
    """The pods are made once the others are ready. They are planned with these if they ask for GPUs
    in the same way, and for no more."""
    note: str | None = None
    """A note to users: how these pods differ from those in a cluster."""
    is_of_base: bool = False
    """The template is in the object that `Workload.base` names."""
    made_template: dict[str, object] | None = None
    """The template that the controller makes, where nobody wrote it."""

    @property
    def total(self) -> int:
        """Number of pods of all groups."""
        return self.count * self.groups

    @property
    def request(self) -> Request | None:
        """The GPU request of each pod; None where Linkwise may choose no GPUs for it."""
        # Only admission decides about resources under NVIDIA's names.
        request, _ = read_request(Pod(spec=self.spec))
        return request if request.family is not None else None


class OwnerState(Enum):
    """Whether an owner makes pods."""

    ACTIVE = "active"
    SUSPENDED = "suspended"
    """It makes none for now."""
    SUCCEEDED = "succeeded"
    FAILED = "failed"

    @property
    def is_final(self) -> bool:
        """It never makes pods again."""
        return self in {OwnerState.SUCCEEDED, OwnerState.FAILED}


_OUTCOMES = {
    "Succeeded": OwnerState.SUCCEEDED,
    "Complete": OwnerState.SUCCEEDED,
    "Completed": OwnerState.SUCCEEDED,
    "Failed": OwnerState.FAILED,
}
"""By text in the status: `Complete` of a batch Job, `Completed` of a JobSet or a Volcano Job; the
others are Kubeflow's, and `Failed` is of all."""


class _Metadata(KubeObject, frozen=True):
    name: str = ""
    generate_name: str = ""
    uid: str = ""
    owner_references: list[Owner] | None = None


class _Condition(KubeObject, frozen=True):
    type: str = ""
    status: str = ""


class Status(KubeObject, frozen=True):
    """The status of most kinds."""

    conditions: list[_Condition] | None = None

    @property
    def reached(self) -> Iterable[str]:
        """The conditions that hold, and the states."""
        return [one.type for one in self.conditions or () if one.status == "True"]


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

    def on(self, _base: "Workload", /) -> "Workload":
        """Return the workload with the pod templates of its base."""
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
        for reached in self.status.reached:
            if outcome := _OUTCOMES.get(reached):
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
    ordered: OrderedStart | None = None
    is_base: bool = False
    """It makes no pods; workloads take their pod templates from it."""

    def knows(self, api_version: str) -> bool:
        """Return whether the pods of this version are known here."""
        return not self.versions or api_version.rpartition("/")[2] in self.versions

    @cached_property
    def decoder(self) -> Decoder[Workload]:
        """Decodes objects of the kind from JSON."""
        return Decoder(self.shape)


class Template(KubeObject, frozen=True):
    """A pod template."""

    spec: PodSpec = PodSpec()


def number(written: int | None, default: int = 1) -> int:
    """Return a number of pods: the default where it is absent, 0 where it is negative."""
    return default if written is None else max(written, 0)
