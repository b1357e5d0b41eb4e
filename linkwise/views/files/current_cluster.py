"""A cluster as it is now, with its policy and its other objects."""

from dataclasses import dataclass

from linkwise.cluster.keys import API_VERSION
from linkwise.manifest.lines import without_nulls
from linkwise.manifest.value import InputError, Value
from linkwise.policy.snapshot import PolicySnapshot
from linkwise.views.files.cluster_file import Cluster, ClusterMemo, ClusterObjects
from linkwise.views.files.policies import policy_config_maps
from linkwise.views.files.source import shown_name

_NODES = "Add Nodes, as kubectl get nodes -o yaml gives them, or take linkwise snapshot's file."


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
    """The Gang objects; `linkwise snapshot` keeps none."""
    warnings: tuple[str, ...] = ()
    """Objects that could not be read, and guesses."""


def current_cluster(
    objects: ClusterObjects, namespace: str, source: str, memo: ClusterMemo | None = None
) -> CurrentCluster:
    """Return the cluster that these objects make, with the policy of its ConfigMaps.

    Args:
        objects: Its objects.
        namespace: Namespace of objects that are named without one.
        source: The file, or the API server's address.
        memo: Of the last state of the cluster; None: everything is computed.

    Raises:
        InputError: An object is wrong; with its line.
    """
    memo = memo or ClusterMemo()
    (policy,) = memo.policies.map([(tuple(policy_config_maps(objects.others)),)])
    cluster = objects.build(policy, memo)
    others = tuple(objects.others)
    gangs = tuple(without_nulls(each.mapping()) for each in others if _is_gang(each))
    return CurrentCluster(cluster, policy, others, namespace, source, gangs, cluster.warnings)


def _is_gang(value: Value) -> bool:
    head = value.need("apiVersion").plain, value.need("kind").plain
    return head == (API_VERSION, "Gang")


def require_nodes(cluster: Cluster, file: str) -> None:
    """Check that the cluster of a file has a node.

    Raises:
        InputError: It has none.
    """
    if not cluster.nodes:
        raise InputError(f"{shown_name(file)}: there is no node in it. {_NODES}")
