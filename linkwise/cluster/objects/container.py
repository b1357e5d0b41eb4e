"""A container of a pod: its resources, variables, ports and mounts."""

from typing import Annotated, TypeAlias

from msgspec import Meta, field

from linkwise.cluster.objects.kube_object import KubeObject
from linkwise.cluster.objects.metadata import Name

Amount: TypeAlias = str | int | float
"""An unparsed Kubernetes quantity; JSON allows a bare number."""
Amounts: TypeAlias = dict[str, Amount]
_NewAmount: TypeAlias = (
    Annotated[str, Meta(max_length=1024)]
    | Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
    | float
)
"""A longer integer takes time that is quadratic in its digits."""
_NewAmounts: TypeAlias = Annotated[dict[Name, _NewAmount], Meta(max_length=256)]
Int32: TypeAlias = Annotated[int, Meta(ge=-(1 << 31), lt=1 << 31)]
"""An integer of the Kubernetes API; an API server stores no larger one."""


class FieldRef(KubeObject, frozen=True):
    """A field of the pod, by the downward API."""

    field_path: str = ""


class EnvSource(KubeObject, frozen=True):
    """Source of the value of a variable."""

    field_ref: FieldRef | None = None


class Env(KubeObject, frozen=True):
    """An environment variable."""

    name: str
    value: str = ""
    value_from: EnvSource | None = None


class Port(KubeObject, frozen=True):
    """A container's port."""

    container_port: Int32 = 0
    host_port: Int32 = 0
    host_ip: str = field(default="", name="hostIP")
    protocol: str = "TCP"


class EnvFrom(KubeObject, frozen=True):
    """Variables from another object; only the presence is read."""


class VolumeMount(KubeObject, frozen=True):
    """A volume mount."""

    name: str = ""
    mount_path: str = ""


class ResourceClaim(KubeObject, frozen=True):
    """A reference to a DRA claim, by a pod or by a container; an API server bounds the names."""

    name: Name = ""
    """Of the reference: a container names one of its pod's."""
    resource_claim_name: Name | None = None
    """Name of the claim, in the reference of a pod; None: it is made from a template."""
    resource_claim_template_name: Name | None = None
    """Name of this template."""
    request: Name | None = None
    """The request of the claim, in the reference of a container; None: all of them."""


class NewResources(KubeObject, frozen=True):
    """Requests and limits of a container that is being created."""

    limits: _NewAmounts | None = None
    requests: _NewAmounts | None = None
    claims: Annotated[list[ResourceClaim], Meta(max_length=256)] | None = None


class Resources(NewResources, frozen=True):
    """A container's requests and limits."""

    limits: Amounts | None = None
    requests: Amounts | None = None
    claims: list[ResourceClaim] | None = None


class SecurityContext(KubeObject, frozen=True):
    """Security context of a container."""

    privileged: bool | None = None


class NewContainer(KubeObject, frozen=True):
    """A container, an init container, or a sidecar (an init container that restarts)."""

    name: Name = ""
    resources: NewResources | None = None
    env: Annotated[list[Env], Meta(max_length=8192)] | None = None
    restart_policy: str | None = None
    security_context: SecurityContext | None = None
    volume_mounts: Annotated[list[VolumeMount], Meta(max_length=8192)] | None = None

    @property
    def limits(self) -> dict[str, Amount]:
        """The container's limits; empty where none are set."""
        return (self.resources.limits if self.resources else None) or {}

    @property
    def requests(self) -> dict[str, Amount]:
        """The container's requests; empty where none are set."""
        return (self.resources.requests if self.resources else None) or {}


class Container(NewContainer, frozen=True):
    """A container of an existing pod."""

    name: str = ""
    resources: Resources | None = None
    env: list[Env] | None = None
    ports: list[Port] | None = None
    env_from: list[EnvFrom] | None = None
    volume_mounts: list[VolumeMount] | None = None
