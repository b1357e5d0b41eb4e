"""Parse a pod: its GPU request by the resource names of its nodes, and its gang."""

from collections.abc import Mapping

from msgspec import Struct

from linkwise.admission.operations import Operation
from linkwise.admission.read.claims import claim_findings, label_choice
from linkwise.admission.read.sharing import (
    NodeSharing,
    Renaming,
    offering,
    rename_resource,
    sharing_findings,
    sharing_on_nodes,
)
from linkwise.cluster.finding import Finding
from linkwise.cluster.gang import Mark, gang_mark, is_member, may_be_member
from linkwise.cluster.keys import DEFAULT_SCHEDULER, HAMI_RESOURCES, MODE_LABELS, NVIDIA_GPU
from linkwise.cluster.mode import NodeMode
from linkwise.cluster.nodes.capacity import Capacity
from linkwise.cluster.objects.pod import NewPod, NewPodSpec
from linkwise.cluster.objects.selector import is_tied, names_label
from linkwise.cluster.requests.container_request import all_containers
from linkwise.cluster.requests.request import Request, mode_of, user_claims_request
from linkwise.cluster.requests.request_findings import node_name_finding
from linkwise.cluster.requests.request_reader import read_request
from linkwise.cluster.requests.user_claims.claim_spec import Asked, Delegated
from linkwise.cluster.requests.user_claims.pod_claims import ClaimSource, UserClaims, claims_of_user
from linkwise.policy.snapshot import PolicySnapshot
from linkwise.workloads.owned_gang import OwnedGang, mark_by_owner, owned_gang


class ParsedPod(Struct, frozen=True, gc=False):
    """A pod after profiles and renaming, its GPU request and its gang."""

    pod: NewPod
    request: Request
    mark: Mark | None
    member: bool
    """It is placed with its gang; a launcher has a mark and is not a member."""
    findings: tuple[Finding, ...]
    """Findings about the request, the gang and the policy's sharing."""
    shared: NodeSharing = ()
    """Sharing of the requested resource on the nodes that the pod may be bound to."""
    renaming: tuple[Operation, ...] = ()
    delegated: str | None = None
    """Why kube-scheduler allocates the claims that it brings; None: no reason is known."""
    owned: OwnedGang | None = None
    """Its gang by its owner, if it has no mark of its own; admission writes the mark."""


def claims_that_place(
    pod: NewPod, asked: Mapping[ClaimSource, Asked], policy: PolicySnapshot, capacity: Capacity
) -> UserClaims | Delegated | None:
    """Return the claims of its user by which Linkwise gives a pod its GPUs; None: by none.

    Args:
        pod: The pod after profiles.
        asked: What its templates and claims ask for.
        policy: Whether Linkwise allocates such claims.
        capacity: Which claims nodes there are.
    """
    placement, spec = policy.policy.placement, pod.spec
    if not asked or placement.templates == "off" or placement.nvidia == "off":
        return None
    is_elsewhere = names_label(spec, *MODE_LABELS) and not is_tied(
        spec, MODE_LABELS, NodeMode.TOPOLOGY
    )
    if label_choice(pod) is False or _bypasses(pod, policy) or is_elsewhere:
        return None
    found = claims_of_user(spec, asked)
    if not isinstance(found, UserClaims):
        return found
    if not capacity.has_claims_node(spec, found.gpus):
        return None
    if not capacity.may_satisfy(found.selectors):
        return Delegated("no node of Linkwise has GPUs that satisfy the selectors")
    return found


def parse_pod(
    pod: NewPod,
    policy: PolicySnapshot,
    capacity: Capacity,
    brought: UserClaims | Delegated | None = None,
) -> ParsedPod:
    """Return a pod with its GPU request and its gang.

    Args:
        pod: The pod after profiles.
        policy: Its `sharing` and `placement.nvidia` apply to resources under NVIDIA's names.
        capacity: Maximum capacity of the nodes.
        brought: The claims of its user by which it gets GPUs.
    """
    request, findings = read_request(pod)
    if isinstance(brought, UserClaims):
        request = user_claims_request(brought)
    delegated = brought.reason if isinstance(brought, Delegated) else None
    mark, sizes = gang_mark(pod)
    owned = None
    # Pods of one owner that name a claim share its GPUs: each is placed alone, after the first one.
    shares = request.user_claims is not None and request.user_claims.are_named(pod.spec)
    if mark is None and request.family is not None and not shares:
        owned = owned_gang(pod, policy.policy.gangs.kinds)
        if owned is not None:
            mark, sizes = mark_by_owner(pod, owned)
    shared: NodeSharing = ()
    renaming: Renaming | None = None
    if request.family is not None and mode_of(request.resource) is not None:
        sharing = sharing_on_nodes(pod, policy.policy.sharing.groups, capacity)
        renaming = rename_resource(pod, sharing) if policy.policy.sharing.rename else None
        if renaming:
            pod = renaming.pod
            request, findings = read_request(pod)
        by_claim = request.by_claim or _is_by_claim(pod, request, policy, capacity)
        by_count = not by_claim and _is_by_count(pod, request, mark, policy, capacity)
        places = by_claim or by_count or _is_ours(pod, request, policy, capacity)
        if not by_claim:
            shared = offering(sharing, request)
            findings = (*findings, *sharing_findings(shared, request))
        request = request.decided(places=places, by_count=by_count, by_claim=by_claim)
        findings = (*findings, *_node_name_findings(pod, request, policy, capacity))
    findings = (*findings, *claim_findings(pod, request))
    if owned is not None and not request.places:
        # Nothing marks it as a gang, so it is not one where Linkwise does not place it.
        owned, mark = None, None
    member = is_member(pod, request, mark)
    if member and sizes:
        # Sizes of gangs that Linkwise does not place are not checked.
        findings = (*findings, *sizes)
    if renaming is None:
        return ParsedPod(pod, request, mark, member, findings, shared, (), delegated, owned)
    findings = tuple(renaming.as_written(finding) for finding in findings)
    operations = renaming.operations
    return ParsedPod(pod, request, mark, member, findings, shared, operations, delegated, owned)


def _is_by_claim(pod: NewPod, request: Request, policy: PolicySnapshot, capacity: Capacity) -> bool:
    """Return whether a pod for `nvidia.com/gpu` gets its GPUs by a claim.

    A node mode that the pod names takes precedence, since all claims nodes have mode `topology`.
    """
    placement, spec = policy.policy.placement, pod.spec
    if request.resource != NVIDIA_GPU or placement.nvidia == "off" or _bypasses(pod, policy):
        return False
    if names_label(spec, *MODE_LABELS) and not is_tied(spec, MODE_LABELS, NodeMode.TOPOLOGY):
        return False
    choice = label_choice(pod)
    if choice is None and placement.claims == "auto":
        return capacity.needs_claim(spec, request.gpus)
    return placement.claims == "always" if choice is None else choice


def _is_by_count(
    pod: NewPod, request: Request, mark: Mark | None, policy: PolicySnapshot, capacity: Capacity
) -> bool:
    """Return whether Linkwise plans a pod on all nodes, also where NVIDIA's plugin chooses GPUs.

    These are the members of gangs, by policy single pods, too. Not if a variable that the pod gets
    now decides about its GPUs, and a node of our modes fits: the variable must be right there.
    """
    rules = policy.policy
    is_planned = rules.placement.nvidia == "count" or (
        rules.placement.nvidia == "auto" and may_be_member(pod, mark)
    )
    if not is_planned or request.resource != NVIDIA_GPU or _bypasses(pod, policy):
        return False
    if is_tied(pod.spec, MODE_LABELS, NodeMode.TOPOLOGY):
        return False
    by_variable = rules.containers.gpu_injection == "runtimeClass"
    return not (by_variable and capacity.has_exact_node(pod.spec, request.gpus))


def _bypasses(pod: NewPod, policy: PolicySnapshot) -> bool:
    """Return whether a pod bypasses Linkwise: it has a nodeName, or another system places it."""
    spec, schedulers = pod.spec, {"", DEFAULT_SCHEDULER, policy.policy.placement.scheduler_name}
    return bool(spec.node_name) or spec.scheduler_name not in schedulers or _is_of_hami(spec)


def _node_name_findings(
    pod: NewPod, request: Request, policy: PolicySnapshot, capacity: Capacity
) -> tuple[Finding, ...]:
    """Return an error for a pod that names a node where only Linkwise chooses `nvidia.com/gpu`.

    On any other node NVIDIA's plugin chooses its GPUs. GPU Operator's validator makes such pods.
    """
    name = pod.spec.node_name
    if not name or request.resource != NVIDIA_GPU or policy.policy.placement.nvidia == "off":
        return ()
    is_ours = request.places or any(node.name == name for node in capacity.exact)
    return (node_name_finding(name),) if is_ours else ()


def _is_of_hami(spec: NewPodSpec) -> bool:
    """Return whether HAMi, whose webhook may come later, will place a pod by its own scheduler."""
    return any(
        name in HAMI_RESOURCES
        for container in all_containers(spec)
        if container.resources
        for amounts in (container.resources.limits, container.resources.requests)
        for name in amounts or ()
    )


def _is_ours(pod: NewPod, request: Request, policy: PolicySnapshot, capacity: Capacity) -> bool:
    """Return whether Linkwise chooses the GPUs of a request under NVIDIA's names.

    GPUs are delegated to the plugin unless a node of our modes offers them that the pod may be
    bound to: a pod must not be tied to nodes that do not exist. A node mode that the pod names
    takes precedence.
    """
    mode = mode_of(request.resource)
    if mode is None or policy.policy.placement.nvidia == "off":
        return False
    if names_label(pod.spec, *MODE_LABELS):
        return is_tied(pod.spec, MODE_LABELS, mode)
    if request.resource == NVIDIA_GPU:
        return not _bypasses(pod, policy) and capacity.has_exact_node(pod.spec, request.gpus)
    return bool(capacity.replicas)
