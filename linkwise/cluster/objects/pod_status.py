"""The status of a pod: what a scheduler, kube-controller-manager and the kubelet report."""

from linkwise.cluster.objects.container import Amounts, Resources
from linkwise.cluster.objects.kube_object import KubeObject
from linkwise.cluster.objects.time import seconds_of

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


class ContainerStatus(KubeObject, frozen=True):
    """What the kubelet reports of a container."""

    name: str = ""
    allocated_resources: Amounts | None = None
    """Requests that the node has admitted; others than in the spec while it is resized."""
    resources: Resources | None = None
    """What it runs with."""


class PodStatus(KubeObject, frozen=True):
    """A pod's status."""

    phase: str = ""
    conditions: list[PodCondition] | None = None
    resource_claim_statuses: list[MadeClaim] | None = None
    extended_resource_claim_status: ExtendedResourceClaim | None = None
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    allocated_resources: Amounts | None = None
    """As of a container, for what the pod itself requests."""
    resources: Resources | None = None
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
    def is_resize_infeasible(self) -> bool:
        """Its node can never give it what it requests now."""
        return any(
            one.type == "PodResizePending" and one.reason == "Infeasible"
            for one in self.conditions or ()
        )

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
    def unschedulable(self) -> str:
        """The message of a scheduler that finds no node for the pod; empty: it says nothing.

        Nor does it mean anything while it keeps a node for the pod, and waits for others to end.
        """
        for one in self.conditions or ():
            if one.type == "PodScheduled" and one.status == "False":
                is_answer = one.reason == "Unschedulable" and one.message != NO_CAPACITY
                return one.message if is_answer and not self.nominated_node_name else ""
        return ""

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
