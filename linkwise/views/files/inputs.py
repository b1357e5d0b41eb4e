"""Reads what `check` and `simulate` work on: workloads, policy, profiles and a cluster."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from linkwise.admission.decide.admit import admit
from linkwise.admission.decide.outcome import Outcome
from linkwise.cluster.keys import NAMESPACE_NAME
from linkwise.cluster.nodes.capacity import Capacity
from linkwise.cluster.nodes.node_capacity import capacity_of
from linkwise.cluster.objects.pod import Pod
from linkwise.cluster.objects.priority_class import PriorityClass
from linkwise.cluster.requests.user_claims.claim_spec import Asked
from linkwise.cluster.requests.user_claims.pod_claims import ClaimSource, claim_sources
from linkwise.manifest.lines import without_nulls
from linkwise.manifest.template import PodTemplate
from linkwise.manifest.typed import read_as
from linkwise.manifest.value import Value
from linkwise.manifest.workload import NO_PODS, Unjudged, expanded
from linkwise.policy.snapshot import PolicySnapshot
from linkwise.views.files.claims_asked import read_claims_asked
from linkwise.views.files.objects import AnyObject
from linkwise.views.files.policies import policy_snapshot, read_policies, stored_policies
from linkwise.views.files.source import DEFAULT_NAMESPACE, read_readable, stream_objects

if TYPE_CHECKING:
    from linkwise.views.files.cluster_file import Cluster, ClusterObjects


@dataclass(frozen=True, slots=True)
class InputFiles:
    """The files that are named on the command line."""

    manifests: Sequence[str]
    policy: str | None = None
    profile: str | None = None
    cluster: str | None = None
    namespace: str = DEFAULT_NAMESPACE
    """Of manifests that name none."""


@dataclass(frozen=True, slots=True)
class ReadManifests:
    """The objects of manifests."""

    objects: Sequence[Value]
    unreadable: tuple[str, ...]
    """Why files or objects cannot be read."""
    namespace: str = DEFAULT_NAMESPACE
    """Of objects that name none."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """The contents of the files."""

    templates: tuple[PodTemplate, ...]
    """In the order of the files and their documents."""
    unjudged: tuple[Unjudged, ...]
    """Objects of unknown kinds that may create pods."""
    policy: PolicySnapshot
    cluster: "Cluster | None"
    namespaces: Mapping[str, Mapping[str, str]]
    """Labels of the namespaces whose labels are known."""
    claims_asked: Mapping[tuple[str, ClaimSource], Asked]
    """What ResourceClaimTemplates ask for, by namespace and name."""
    capacity: Capacity
    warnings: tuple[str, ...]
    """Omissions and guesses, for people."""
    unreadable: tuple[str, ...] = ()
    """Why files or objects cannot be read: one line each, with the place and the fix."""
    stored: Sequence[Value] = ()
    """The objects of the cluster but its nodes and pods."""
    classes: Mapping[str, PriorityClass] = field(default_factory=dict)
    """The PriorityClasses of the manifests and the cluster, by name."""


def read_inputs(files: InputFiles) -> Inputs:
    """Read the files.

    Raises:
        InputError: The policy, the profiles or the cluster cannot be read; one line that says
            where, what, and what to do.
    """
    objects, unreadable = read_readable(files.manifests)
    cluster_objects = _collect_objects(files.cluster) if files.cluster else None
    stored = cluster_objects.others if cluster_objects else []
    own = read_policies(files.policy, files.profile)
    own_kinds = {text.kind for _, text in own}
    inherited = [pair for pair in stored_policies(stored) if pair[1].kind not in own_kinds]
    policy = policy_snapshot([*inherited, *own])
    cluster = _build_cluster(cluster_objects, policy) if cluster_objects else None
    return inputs_of(
        ReadManifests(objects, tuple(unreadable), files.namespace), policy, cluster, stored
    )


def inputs_of(
    manifests: ReadManifests,
    policy: PolicySnapshot,
    cluster: "Cluster | None",
    stored: Sequence[Value],
) -> Inputs:
    """Return inputs from what was read.

    Args:
        manifests: The objects of manifests.
        policy: Policy and profiles.
        cluster: Its nodes and pods; None without a cluster.
        stored: The other objects of the cluster.
    """
    objects = manifests.objects
    workloads = expanded(objects, manifests.namespace, stored)
    problems = (*manifests.unreadable, *workloads.invalid)
    return Inputs(
        templates=workloads.templates,
        unjudged=workloads.unjudged,
        policy=policy,
        cluster=cluster,
        namespaces=_namespace_labels([*stored, *objects]),
        claims_asked=(
            {}
            if policy.policy.placement.templates == "off"
            else read_claims_asked([*stored, *objects], manifests.namespace)
        ),
        capacity=capacity_of(cluster.nodes) if cluster else Capacity(),
        warnings=(
            *workloads.warnings,
            *(() if workloads.templates or workloads.unjudged or problems else (NO_PODS,)),
            *(cluster.warnings if cluster else ()),
        ),
        unreadable=problems,
        stored=stored,
        classes=_classes([*stored, *objects]),
    )


def admit_pod(inputs: Inputs, template: PodTemplate, pod: Pod) -> Outcome:
    """Return the result of admission for one pod of a template."""
    return admit(
        pod,
        namespace=template.namespace,
        namespace_labels=inputs.namespaces.get(template.namespace),
        policy=inputs.policy,
        capacity=inputs.capacity,
        workload=template.workload,
        asked={
            source: inputs.claims_asked[template.namespace, source]
            for source in claim_sources(pod.spec)
            if (template.namespace, source) in inputs.claims_asked
        },
    )


def _collect_objects(file: str) -> "ClusterObjects":
    # Nodes, ledgers and machines cost 0.1 s to import; a check without a cluster needs none.
    from linkwise.views.files.cluster_file import collect_objects  # noqa: PLC0415

    return collect_objects(stream_objects(file), file)


def _build_cluster(objects: "ClusterObjects", policy: PolicySnapshot) -> "Cluster":
    from linkwise.views.files.current_cluster import require_nodes  # noqa: PLC0415

    cluster = objects.build(policy)
    require_nodes(cluster, objects.file)
    return cluster


def _classes(objects: Iterable[Value]) -> dict[str, PriorityClass]:
    read = (
        read_as(PriorityClass, without_nulls(value.mapping()), value)
        for value in objects
        if value.need("kind").plain == "PriorityClass"
    )
    return {each.metadata.name: each for each in read}


def _namespace_labels(objects: Iterable[Value]) -> dict[str, Mapping[str, str]]:
    """Return the labels of the Namespaces among objects, by name."""
    labels: dict[str, Mapping[str, str]] = {}
    for value in objects:
        if value.need("kind").plain == "Namespace":
            metadata = read_as(AnyObject, without_nulls(value.mapping()), value).metadata
            labels[metadata.name] = {NAMESPACE_NAME: metadata.name} | (metadata.labels or {})
    return labels
