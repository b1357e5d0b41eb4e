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
    TopologySpreadConstraint,
)
from linkwise.cluster.objects.container import (
    Amounts,
    Container,
    Int32,
    NewContainer,
    ResourceClaim,
    Resources,
)
from linkwise.cluster.objects.kube_object import KubeObject, Labels
from linkwise.cluster.objects.metadata import Metadata, NewMetadata
from linkwise.cluster.objects.pod_status import PodStatus


class SchedulingGate(KubeObject, frozen=True):
    """A scheduling gate."""

    name: str


_NewContainers: TypeAlias = Annotated[Sequence[NewContainer], Meta(max_length=1024)]
"""Bounded, since admission visits each container: a huge review would delay all others."""


class VolumeClaim(KubeObject, frozen=True):
    """A PersistentVolumeClaim, which may restrict the nodes."""

    claim_name: str = ""


class HostPath(KubeObject, frozen=True):
    """A hostPath; only the presence is read."""


class EphemeralVolume(KubeObject, frozen=True):
    """A generic ephemeral volume; only the presence is read, since its claim says the rest."""


class Volume(KubeObject, frozen=True):
    """A volume: a PersistentVolumeClaim, an ephemeral one, a hostPath, or any other."""

    name: str = ""
    persistent_volume_claim: VolumeClaim | None = None
    host_path: HostPath | None = None
    ephemeral: EphemeralVolume | None = None


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
    topology_spread_constraints: list[TopologySpreadConstraint] | None = None
    overhead: Amounts | None = None
    resources: Resources | None = None
    """What the pod requests itself, instead of the total of its containers."""
    host_network: bool | None = None
    resource_claims: list[ResourceClaim] | None = None
    termination_grace_period_seconds: int | None = None


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
