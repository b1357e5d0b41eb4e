"""What `check` and `simulate` are given: workloads, policy, profiles and a cluster."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec import Struct

from cli.files.policies import decisions_in, decisions_of, snapshot_of
from cli.files.source import read_objects, stream_objects
from cluster.capacity import Capacity, capacity_of
from cluster.keys import NAMESPACE_NAME
from cluster.pod import Metadata, Pod
from manifest.lines import without_nulls
from manifest.template import PodTemplate
from manifest.typed import read_as
from manifest.value import Value
from manifest.workload import Unjudged, expanded
from policy.snapshot import PolicySnapshot
from webhook.admit import admit
from webhook.outcome import Outcome

if TYPE_CHECKING:
    from cli.files.cluster_file import Cluster, Gathered

DEFAULT_NAMESPACE = "default"


class _Namespace(Struct):
    metadata: Metadata = Metadata()


@dataclass(frozen=True, slots=True)
class Given:
    """The names of the files that a person gives on the command line."""

    files: Sequence[str]
    policy: str | None = None
    profile: str | None = None
    cluster: str | None = None
    namespace: str = DEFAULT_NAMESPACE


@dataclass(frozen=True, slots=True)
class Inputs:
    """The same files, read."""

    templates: tuple[PodTemplate, ...]
    """In the order of the files and their documents."""
    unjudged: tuple[Unjudged, ...]
    """Objects that may make pods, of kinds that are not known."""
    policy: PolicySnapshot
    cluster: "Cluster | None"
    namespaces: Mapping[str, Mapping[str, str]]
    """Labels of the namespaces of which they are known."""
    capacity: Capacity
    warnings: tuple[str, ...]
    """What was passed over or guessed, for people."""


def read_inputs(given: Given) -> Inputs:
    """Return everything that the files tell.

    Raises:
        InputError: One of them cannot be read; one line that says where, what, and what to do.
    """
    objects = [value for name in given.files for value in read_objects(name)]
    gathered = _gathered(given.cluster) if given.cluster else None
    of_cluster = gathered.others if gathered else []
    found = decisions_in(given.policy, given.profile)
    kinds = {one.kind for _, one in found}
    inherited = [pair for pair in decisions_of(of_cluster) if pair[1].kind not in kinds]
    policy = snapshot_of([*inherited, *found])
    cluster = _cluster(gathered, policy) if gathered else None
    found_pods = expanded(objects, given.namespace)
    return Inputs(
        templates=found_pods.templates,
        unjudged=found_pods.unjudged,
        policy=policy,
        cluster=cluster,
        namespaces=_namespaces([*of_cluster, *objects]),
        capacity=capacity_of(cluster.nodes) if cluster else Capacity(),
        warnings=(*found_pods.warnings, *(cluster.warnings if cluster else ())),
    )


def admitted(inputs: Inputs, template: PodTemplate, pod: Pod) -> Outcome:
    """Return what admission makes of one pod of a template."""
    return admit(
        pod,
        namespace=template.namespace,
        namespace_labels=inputs.namespaces.get(template.namespace),
        policy=inputs.policy,
        capacity=inputs.capacity,
        workload=template.workload,
    )


def _gathered(file: str) -> "Gathered":
    # Nodes, ledgers and machines cost 0.1 s to import; a check without a cluster needs none.
    from cli.files.cluster_file import gathered  # noqa: PLC0415

    return gathered(stream_objects(file), file)


def _cluster(gathered: "Gathered", policy: PolicySnapshot) -> "Cluster":
    from cli.files.cluster_file import checked  # noqa: PLC0415

    return checked(gathered.cluster(policy), gathered.file)


def _namespaces(objects: Iterable[Value]) -> dict[str, Mapping[str, str]]:
    """Return the labels of the Namespaces among objects, by name."""
    namespaces: dict[str, Mapping[str, str]] = {}
    for value in objects:
        if value.need("kind").plain == "Namespace":
            metadata = read_as(_Namespace, without_nulls(value.mapping()), value).metadata
            own = {NAMESPACE_NAME: metadata.name}
            namespaces[metadata.name] = own | (metadata.labels or {})
    return namespaces
