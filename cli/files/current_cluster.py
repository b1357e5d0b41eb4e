"""A cluster as it is now, with its policy and its other objects."""

from dataclasses import dataclass

from cli.files.cluster_file import Cluster, ClusterObjects
from cli.files.policies import policy_snapshot, stored_policies
from manifest.value import Value
from policy.snapshot import PolicySnapshot


@dataclass(frozen=True, slots=True)
class CurrentCluster:
    """A cluster, the policy that applies in it, and its other objects."""

    cluster: Cluster
    policy: PolicySnapshot
    objects: tuple[Value, ...]
    """Everything but nodes and pods."""
    namespace: str
    """Namespace of objects that are named without one."""
    source: str
    """The file, or the API server's address."""
    gangs: tuple[dict[str, object], ...] = ()
    """The Gang objects of a live cluster."""
    warnings: tuple[str, ...] = ()
    """Objects that could not be read, and guesses."""


def current_cluster(objects: ClusterObjects, namespace: str, source: str) -> CurrentCluster:
    """Return the cluster that these objects make, with the policy of its ConfigMaps.

    Raises:
        InputError: An object is wrong; with its line.
    """
    policy = policy_snapshot(stored_policies(objects.others))
    cluster = objects.build(policy)
    others = tuple(objects.others)
    return CurrentCluster(cluster, policy, others, namespace, source, warnings=cluster.warnings)
