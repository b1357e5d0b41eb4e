"""The pods of one template of a workload."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from linkwise.cluster.objects.kube_object import KubeObject
from linkwise.cluster.objects.pod import Pod, PodSpec
from linkwise.cluster.requests.request import Request
from linkwise.cluster.requests.request_reader import read_request
from linkwise.cluster.requests.user_claims.pod_claims import uses_template

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
    least: int | None = None
    """Number of these pods with which the workload goes on running; None: it needs all."""
    starts_with: int | None = None
    """Number of these pods that suffice to start; None: it needs all."""
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

    @property
    def uses_template(self) -> bool:
        """A container of each pod gets devices by a ResourceClaimTemplate."""
        return uses_template(self.spec)


class Template(KubeObject, frozen=True):
    """A pod template."""

    spec: PodSpec = PodSpec()


def number(written: int | None, default: int = 1) -> int:
    """Return a number of pods: the default where it is absent, 0 where it is negative."""
    return default if written is None else max(written, 0)
