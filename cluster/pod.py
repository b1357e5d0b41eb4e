"""A pod, as far as Linkwise reads it: typed, straight from the bytes.

Fields that are not named here are skipped while decoding; a patch is made of explicit operations,
so what is skipped is never lost.

The bounds (`max_length`) keep a hostile review from growing: only what is named `New...`, a pod
that is being created, has them. A pod that exists has none: if it could not be read, it would not
be counted, and its GPUs would be given to others. An amount has no bound in either: reading one
costs no more than its text is long (`cluster.quantity`).
"""

from collections.abc import Sequence
from typing import Annotated, TypeAlias

from msgspec import Meta, Struct, field

from cluster.keys import GANG

Labels: TypeAlias = dict[str, str]
_NewLabels: TypeAlias = Annotated[Labels, Meta(max_length=4096)]
Amount: TypeAlias = str | int | float
"""A Kubernetes quantity before it is read; JSON allows a bare number."""
Amounts: TypeAlias = dict[str, Amount]


class _Object(Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The names on the wire are lowerCamelCase.

    What is decoded from JSON has no cycles, so that the garbage collector need not look at it.
    """


class NewOwner(_Object, frozen=True):
    """An ownerReference of a pod that is being created."""

    kind: str = ""
    controller: bool | None = None


class Owner(NewOwner, frozen=True):
    """An ownerReference."""

    api_version: str = ""
    name: str = ""
    uid: str = ""


class NewMetadata(_Object, frozen=True):
    """ObjectMeta of a pod that is being created."""

    generate_name: str = ""
    labels: _NewLabels | None = None
    annotations: _NewLabels | None = None
    owner_references: Annotated[Sequence[NewOwner], Meta(max_length=256)] | None = None


class Metadata(NewMetadata, frozen=True):
    """ObjectMeta."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: Labels | None = None
    annotations: Labels | None = None
    owner_references: Sequence[Owner] | None = None


class Requirement(_Object, frozen=True):
    """One requirement of a label selector, or of a node selector term."""

    key: str
    operator: str
    values: list[str] | None = None


class LabelSelector(_Object, frozen=True):
    """A label selector."""

    match_labels: Labels | None = None
    match_expressions: list[Requirement] | None = None


class NodeSelectorTerm(_Object, frozen=True):
    """One of the terms of which a node must satisfy at least one."""

    match_expressions: list[Requirement] | None = None
    match_fields: list[Requirement] | None = None


class NodeSelector(_Object, frozen=True):
    """ORed node selector terms."""

    node_selector_terms: list[NodeSelectorTerm] | None = None


class NodeAffinity(_Object, frozen=True):
    """The required half of a node affinity; preferences are the scheduler's business."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None


class Affinity(_Object, frozen=True):
    """Affinity: only whether there is a pod (anti-)affinity is read of the other two."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: dict[str, object] | None = None
    pod_anti_affinity: dict[str, object] | None = None


class Toleration(_Object, frozen=True):
    """A toleration."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class SchedulingGate(_Object, frozen=True):
    """A scheduling gate."""

    name: str


class FieldRef(_Object, frozen=True):
    """A field of the pod, by the downward API."""

    field_path: str = ""


class EnvSource(_Object, frozen=True):
    """Where a variable's value comes from, as far as that is the pod itself."""

    field_ref: FieldRef | None = None


class Env(_Object, frozen=True):
    """An environment variable."""

    name: str
    value: str = ""
    value_from: EnvSource | None = None


class Port(_Object, frozen=True):
    """A container's port."""

    container_port: int = 0
    host_port: int = 0
    host_ip: str = field(default="", name="hostIP")
    protocol: str = "TCP"


class EnvFrom(_Object, frozen=True):
    """Variables that stand in another object: only that there are some."""


class VolumeMount(_Object, frozen=True):
    """Where a container has a volume."""

    name: str = ""
    mount_path: str = ""


class Resources(_Object, frozen=True):
    """A container's requests and limits."""

    limits: Amounts | None = None
    requests: Amounts | None = None


class SecurityContext(_Object, frozen=True):
    """A container's rights."""

    privileged: bool | None = None


class NewContainer(_Object, frozen=True):
    """A container, an init container, or a sidecar (an init container that restarts)."""

    name: str = ""
    resources: Resources | None = None
    env: Annotated[list[Env], Meta(max_length=8192)] | None = None
    restart_policy: str | None = None
    security_context: SecurityContext | None = None

    @property
    def limits(self) -> dict[str, Amount]:
        """The container's limits; empty where none are set."""
        return (self.resources.limits if self.resources else None) or {}

    @property
    def requests(self) -> dict[str, Amount]:
        """The container's requests; empty where none are set."""
        return (self.resources.requests if self.resources else None) or {}


class Container(NewContainer, frozen=True):
    """A container of a pod that is to be placed."""

    env: list[Env] | None = None
    ports: list[Port] | None = None
    env_from: list[EnvFrom] | None = None
    volume_mounts: list[VolumeMount] | None = None


_NewContainers: TypeAlias = Annotated[Sequence[NewContainer], Meta(max_length=1024)]
"""Admission looks into each; with tens of thousands, one review would hold up all others."""


class VolumeClaim(_Object, frozen=True):
    """A claim, which may tie the pod to some nodes."""

    claim_name: str = ""


class HostPath(_Object, frozen=True):
    """A folder of the node: only that it is one."""


class Volume(_Object, frozen=True):
    """A volume: only whether it is a claim, or the node's."""

    name: str = ""
    persistent_volume_claim: VolumeClaim | None = None
    host_path: HostPath | None = None


class ResourceClaim(_Object, frozen=True):
    """A claim for devices that a DRA driver gives out: only that there is one."""


class SchedulingGroup(_Object, frozen=True):
    """The native mark of a gang (Kubernetes 1.36)."""

    pod_group_name: str = ""


class NewPodSpec(_Object, frozen=True):
    """The spec of a pod that is being created."""

    containers: _NewContainers = []
    init_containers: _NewContainers | None = None
    node_name: str = ""
    node_selector: Labels | None = None
    affinity: Affinity | None = None
    scheduler_name: str = ""
    scheduling_gates: list[SchedulingGate] | None = None
    scheduling_group: SchedulingGroup | None = None
    priority_class_name: str = ""
    priority: int | None = None
    preemption_policy: str | None = None

    @property
    def required_nodes(self) -> NodeSelector | None:
        """What the affinity requires of a node; None where it requires nothing."""
        nodes = self.affinity.node_affinity if self.affinity else None
        return nodes.required_during_scheduling_ignored_during_execution if nodes else None

    @property
    def required_terms(self) -> Sequence[NodeSelectorTerm]:
        """The terms of which a node must satisfy one; empty where there are none."""
        required = self.required_nodes
        return (required.node_selector_terms if required else None) or ()

    @property
    def is_gated(self) -> bool:
        """The pod is held by our gate until the planner places it."""
        return any(gate.name == GANG for gate in self.scheduling_gates or ())


class PodSpec(NewPodSpec, frozen=True):
    """The spec of a pod that is to be placed."""

    containers: Sequence[Container] = []
    init_containers: Sequence[Container] | None = None
    tolerations: list[Toleration] | None = None
    volumes: list[Volume] | None = None
    topology_spread_constraints: list[dict[str, object]] | None = None
    overhead: Amounts | None = None
    host_network: bool | None = None
    resource_claims: list[ResourceClaim] | None = None


class PodCondition(_Object, frozen=True):
    """One condition of a pod."""

    type: str = ""
    reason: str = ""


class PodStatus(_Object, frozen=True):
    """A pod's status."""

    phase: str = ""
    conditions: list[PodCondition] | None = None

    @property
    def was_tried(self) -> bool:
        """A scheduler has looked for a node: before, the reason is the API server's own."""
        told = (one.reason for one in self.conditions or () if one.type == "PodScheduled")
        return any(reason != "SchedulingGated" for reason in told)


class NewPod(_Object, frozen=True):
    """A pod that is being created: what admission reads of it, which is not all that placing does.

    What is not named is skipped, and each list that is read costs admission some microseconds.
    An API server sends both fields always; a patch could not add to what is absent.
    """

    metadata: NewMetadata
    spec: NewPodSpec

    @property
    def labels(self) -> dict[str, str]:
        """The pod's labels; empty where none are set."""
        return self.metadata.labels or {}

    @property
    def annotations(self) -> dict[str, str]:
        """The pod's annotations; empty where none are set."""
        return self.metadata.annotations or {}


class Pod(NewPod, frozen=True):
    """A pod, with all that is read to place it."""

    kind: str = "Pod"
    metadata: Metadata = Metadata()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()
