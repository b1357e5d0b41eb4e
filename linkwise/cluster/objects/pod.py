"""Typed pods, decoded from bytes, with the fields that Linkwise reads.

Other fields are skipped while decoding; patches consist of explicit operations, so nothing is lost.

Bounds (`max_length`) limit hostile reviews. Only types named `New...` (a pod that is being created)
have them: an existing pod that could not be decoded would not be counted, and its GPUs would be
allocated again. Integers have the bounds of the Kubernetes API.
"""

from collections.abc import Sequence
from typing import Annotated, TypeAlias

from msgspec import Meta, field

from linkwise.cluster.keys import GANG
from linkwise.cluster.objects.affinity import (
    Affinity,
    NewAffinity,
    NodeSelector,
    NodeSelectorTerm,
    Toleration,
)
from linkwise.cluster.objects.kube_object import KubeObject, Labels
from linkwise.cluster.objects.time import seconds_of

_Name: TypeAlias = Annotated[str, Meta(max_length=317)]
"""A name, a key, or the value of a label. It is part of messages and patches, so its length is
bounded. The longest valid one is a key with a prefix of 253 characters and a name of 63."""
_NewLabels: TypeAlias = Annotated[dict[_Name, _Name], Meta(max_length=4096)]
_NewAnnotations: TypeAlias = Annotated[dict[_Name, str], Meta(max_length=4096)]
Amount: TypeAlias = str | int | float
"""An unparsed Kubernetes quantity; JSON allows a bare number."""
Amounts: TypeAlias = dict[str, Amount]
_NewAmount: TypeAlias = (
    Annotated[str, Meta(max_length=1024)]
    | Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
    | float
)
"""A longer integer takes time that is quadratic in its digits."""
_NewAmounts: TypeAlias = Annotated[dict[_Name, _NewAmount], Meta(max_length=256)]
Int32: TypeAlias = Annotated[int, Meta(ge=-(1 << 31), lt=1 << 31)]
"""An integer of the Kubernetes API; an API server stores no larger one."""


class NewOwner(KubeObject, frozen=True):
    """An ownerReference of a pod that is being created."""

    kind: str = ""
    controller: bool | None = None
    api_version: str = ""
    name: str = ""


class Owner(NewOwner, frozen=True):
    """An ownerReference."""

    uid: str = ""


class NewMetadata(KubeObject, frozen=True):
    """ObjectMeta of a pod that is being created."""

    generate_name: _Name = ""
    labels: _NewLabels | None = None
    annotations: _NewAnnotations | None = None
    owner_references: Annotated[Sequence[NewOwner], Meta(max_length=256)] | None = None


class Metadata(NewMetadata, frozen=True):
    """ObjectMeta."""

    generate_name: str = ""
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: Labels | None = None
    annotations: Labels | None = None
    owner_references: Sequence[Owner] | None = None

    @property
    def controlling_pod(self) -> str | None:
        """Uid of the pod that controls the object; None: no pod does."""
        owners = self.owner_references or ()
        return next((one.uid for one in owners if one.controller and one.kind == "Pod"), None)


class SchedulingGate(KubeObject, frozen=True):
    """A scheduling gate."""

    name: str


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

    name: _Name = ""
    """Of the reference: a container names one of its pod's."""
    resource_claim_name: _Name | None = None
    """Name of the claim, in the reference of a pod; None: it is made from a template."""
    resource_claim_template_name: _Name | None = None
    """Name of this template."""
    request: _Name | None = None
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

    name: _Name = ""
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


_NewContainers: TypeAlias = Annotated[Sequence[NewContainer], Meta(max_length=1024)]
"""Bounded, since admission visits each container: a huge review would delay all others."""


class VolumeClaim(KubeObject, frozen=True):
    """A PersistentVolumeClaim, which may restrict the nodes."""

    claim_name: str = ""


class HostPath(KubeObject, frozen=True):
    """A hostPath; only the presence is read."""


class Volume(KubeObject, frozen=True):
    """A volume: a PersistentVolumeClaim, a hostPath, or any other."""

    name: str = ""
    persistent_volume_claim: VolumeClaim | None = None
    host_path: HostPath | None = None


class SchedulingGroup(KubeObject, frozen=True):
    """The native gang mark (Kubernetes 1.36)."""

    pod_group_name: str = ""


class NewPodSpec(KubeObject, frozen=True):
    """The spec of a pod that is being created."""

    containers: _NewContainers = field(default_factory=list)
    init_containers: _NewContainers | None = None
    node_name: str = ""
    node_selector: Labels | None = None
    affinity: NewAffinity | None = None
    scheduler_name: str = ""
    runtime_class_name: str = ""
    scheduling_gates: list[SchedulingGate] | None = None
    scheduling_group: SchedulingGroup | None = None
    priority_class_name: str = ""
    priority: Int32 | None = None
    preemption_policy: str | None = None
    resource_claims: Annotated[list[ResourceClaim], Meta(max_length=1024)] | None = None

    @property
    def required_nodes(self) -> NodeSelector | None:
        """The required node affinity, or None."""
        nodes = self.affinity.node_affinity if self.affinity else None
        return nodes.required_during_scheduling_ignored_during_execution if nodes else None

    @property
    def required_terms(self) -> Sequence[NodeSelectorTerm]:
        """The terms of the required node affinity, which are ORed."""
        required = self.required_nodes
        return (required.node_selector_terms if required else None) or ()

    @property
    def is_gated(self) -> bool:
        """The pod has our scheduling gate."""
        return any(gate.name == GANG for gate in self.scheduling_gates or ())


class PodSpec(NewPodSpec, frozen=True):
    """The spec of an existing pod."""

    containers: Sequence[Container] = field(default_factory=list)
    init_containers: Sequence[Container] | None = None
    affinity: Affinity | None = None
    tolerations: list[Toleration] | None = None
    volumes: list[Volume] | None = None
    topology_spread_constraints: list[dict[str, object]] | None = None
    overhead: Amounts | None = None
    host_network: bool | None = None
    resource_claims: list[ResourceClaim] | None = None
    termination_grace_period_seconds: int | None = None


NO_CAPACITY = "No node fits this pod and the others that Linkwise places together with it"
"""The message of the condition `PodScheduled` of a pod behind our gate for which nodes are asked
of an autoscaler."""


_NO_DEVICES = "cannot allocate all claims"
"""Part of the message of kube-scheduler in the condition `PodScheduled`."""


class PodCondition(KubeObject, frozen=True):
    """One condition of a pod."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class MadeClaim(KubeObject, frozen=True):
    """The claim that kube-controller-manager has made from a template for a pod."""

    name: str = ""
    """Of the pod's reference to the template."""
    resource_claim_name: str | None = None
    """Of the claim; None: the pod needs none."""


class ExtendedResource(KubeObject, frozen=True):
    """A resource of a container that a claim provides, not a device plugin."""

    resource_name: str = ""


class ExtendedResourceClaim(KubeObject, frozen=True):
    """The claim that kube-scheduler has made for resources that a pod requests by name."""

    resource_claim_name: str = ""
    request_mappings: list[ExtendedResource] | None = None


class PodStatus(KubeObject, frozen=True):
    """A pod's status."""

    phase: str = ""
    conditions: list[PodCondition] | None = None
    resource_claim_statuses: list[MadeClaim] | None = None
    extended_resource_claim_status: ExtendedResourceClaim | None = None
    start_time: str | None = None
    """When the kubelet of its node first saw it (RFC 3339)."""
    nominated_node_name: str | None = None
    """The node where kube-scheduler keeps what it needs from pods of a lower priority."""

    def is_claimed(self, resource: str) -> bool:
        """Return whether a claim that kube-scheduler has made provides a resource."""
        claim = self.extended_resource_claim_status
        provided = (claim.request_mappings or ()) if claim and claim.resource_claim_name else ()
        return any(one.resource_name == resource for one in provided)

    @property
    def was_tried(self) -> bool:
        """A scheduler tried to schedule the pod; SchedulingGated is set by the API server."""
        return any(
            one.type == "PodScheduled"
            and one.reason != "SchedulingGated"
            and one.message != NO_CAPACITY
            for one in self.conditions or ()
        )

    @property
    def lacks_devices(self) -> bool:
        """kube-scheduler found no node with free devices for its claims.

        Source: kubernetes v1.36, `pkg/scheduler/framework/plugins/dynamicresources`.
        """
        return any(
            one.type == "PodScheduled" and one.status == "False" and _NO_DEVICES in one.message
            for one in self.conditions or ()
        )

    @property
    def unprepared_since(self) -> float | None:
        """When its kubelet began to prepare it [s since 1970]; None: it is ready to start, or new.

        Volumes, network and devices are prepared before the first container starts.
        """
        for one in self.conditions or ():
            if one.type == "PodReadyToStartContainers" and one.status == "False":
                return seconds_of(one.last_transition_time)
        return None

    @property
    def lacks_capacity(self) -> bool:
        """Its condition asks an autoscaler for nodes on behalf of Linkwise."""
        return any(one.message == NO_CAPACITY for one in self.conditions or ())


class NewPod(KubeObject, frozen=True):
    """A pod that is being created, with the fields that admission reads.

    Fewer fields than `Pod`, since each list costs admission some microseconds. Both fields are
    required: an API server always sends them, and a patch could not add to them otherwise.
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
    """An existing pod, with the fields that placement reads."""

    kind: str = "Pod"
    metadata: Metadata = Metadata()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()
