"""A pod that waits for GPUs, as the input of placement."""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property

import msgspec

from linkwise.cluster.account.node_ledger import Holding
from linkwise.cluster.allocations.gpus import NO_GPUS, Counted, GPUs
from linkwise.cluster.finding import Finding, Severity
from linkwise.cluster.objects.pod import Pod
from linkwise.cluster.requests.demand import Demand
from linkwise.cluster.requests.neighbors.neighbor import NO_NEIGHBOR, Neighbor, neighbor_of
from linkwise.cluster.requests.neighbors.rules import NO_RULES, NeighborRules, neighbor_rules
from linkwise.cluster.requests.pod_demand import demand_of
from linkwise.cluster.requests.request import Family, Request
from linkwise.cluster.requests.request_reader import read_request
from linkwise.cluster.requests.user_claims.pod_claims import NO_NEEDS, DeviceNeeds
from linkwise.cluster.volumes.node_choice import NodeChoice
from linkwise.cluster.volumes.pod_volumes import NO_VOLUMES, PodVolumes


@dataclass(frozen=True)
class Member:
    """A pod to place, on its own or in a gang."""

    pod: Pod
    name: str
    """`namespace/name`."""
    request: Request
    demand: Demand
    """What it needs besides GPUs."""
    gang: str | None = None
    """`namespace/name` of its gang, or None."""
    is_sufficient: bool = False
    """Its gang needs one pod only, so that it has to work with no other."""
    claim_places: tuple[NodeChoice, ...] = ()
    """Where its claims of other drivers have devices; a node must satisfy each of them."""
    volumes: PodVolumes | None = None
    """Its volumes as they are now; None: it has none, or kube-scheduler alone judges them."""
    violation: Finding | None = None
    """The first rule that its request breaks: admission lets none pass, but labels change later."""
    rules: NeighborRules = NO_RULES
    """What it requires of the pods near it."""
    neighbor: Neighbor = NO_NEIGHBOR
    """What the rules of other pods will see of it."""

    @property
    def gpus(self) -> int:
        """Whole GPUs that it needs on one node; 0 where it asks for none, or for shares."""
        return self.request.gpus if self.request.family is Family.WHOLE else 0

    @property
    def counted_gpus(self) -> GPUs:
        """Its GPUs on a node where NVIDIA's plugin chooses them."""
        request = self.request
        return Counted(request.resource, request.gpus) if request.gpus else NO_GPUS

    @cached_property
    def needs(self) -> DeviceNeeds:
        """What its GPUs have to satisfy by its claims."""
        brought = self.request.user_claims
        return brought.needs if brought else NO_NEEDS

    @cached_property
    def sufficient(self) -> "Member":
        """The same, of a gang that needs one pod only; one object, as caches know members by it."""
        return replace(self, is_sufficient=True)

    @property
    def needs_whole_gpus(self) -> bool:
        """Parts of one GPU are not enough for it and the others of its gang."""
        return self.gang is not None and not self.is_sufficient

    @property
    def is_follower(self) -> bool:
        """It has affinity to other pods than itself, so that one of them must be placed first."""
        return not all(self.neighbor.is_in(term.pods) for term in self.rules.affinity)

    @cached_property
    def signature(self) -> Hashable:
        """Equal for members that fit the same nodes and take the same amounts there."""
        request = self.request
        amounts = request.family, request.resource, request.gpus, request.memory, request.core
        claimed = request.by_claim, self.needs
        volumes = self.volumes.kind if self.volumes else None
        places = self.claim_places, self.needs_whole_gpus
        return amounts, claimed, self.demand, self.node_constraints, self.rules, places, volumes

    @cached_property
    def node_constraints(self) -> bytes:
        """The pod's node selector, node affinity and tolerations, encoded."""
        spec = self.pod.spec
        constraints = spec.node_selector, spec.required_nodes, spec.tolerations
        return msgspec.msgpack.encode(constraints, order="deterministic")

    def holding(self, gpus: GPUs) -> Holding:
        """Return the ledger's entry for this pod with these GPUs."""
        return Holding(
            pod=self.name,
            uid=self.pod.metadata.uid or self.name,
            gpus=gpus,
            demand=self.demand,
            gang=self.gang,
            neighbor=self.neighbor,
            volumes=self.volumes.held if self.volumes else NO_VOLUMES,
        )


def new_member(pod: Pod, namespace: str, gang: str | None = None) -> Member:
    """Read a pod for placement.

    Args:
        pod: The pod.
        namespace: Where the pod names none.
        gang: `namespace/name` of its gang, or None.
    """
    request, findings = read_request(pod)
    namespace = pod.metadata.namespace or namespace
    return Member(
        pod=pod,
        name=f"{namespace}/{pod.metadata.name}",
        request=request,
        demand=demand_of(pod),
        gang=gang,
        violation=first_error(findings),
        rules=neighbor_rules(pod, namespace),
        neighbor=neighbor_of(pod, namespace),
    )


def first_error(findings: Iterable[Finding]) -> Finding | None:
    """Return the first error among findings, or None."""
    return next((finding for finding in findings if finding.severity is Severity.ERROR), None)
