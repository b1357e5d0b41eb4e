"""Places pods that do not exist yet on the cluster in a file, with the scorer's engine. Pure."""

from cli.files.cluster_file import Cluster
from cluster.whatif_api import FitRequest, FitResult
from policy.snapshot import PolicySnapshot
from scorer.gang.pod_info import pod_info
from scorer.placement.options import preferences_of
from scorer.placement.state.snapshot import Snapshot, snapshot_of
from scorer.whatif.fit import would_fit
from scorer.whatif.simulate import settled_members
from topology.choice import ChoiceMode


def placement_snapshot(
    cluster: Cluster, policy: PolicySnapshot, mode: ChoiceMode = ChoiceMode.KEEP
) -> Snapshot:
    """Return a cluster for placement under a policy.

    Args:
        cluster: The cluster.
        policy: Gives placement strategy, topology domains and the bandwidth of NICs.
        mode: What the choice of GPUs prefers.
    """
    return snapshot_of(cluster.ledger, preferences=preferences_of(policy.policy, mode))


def fit_results(cluster: Cluster, policy: PolicySnapshot, request: FitRequest) -> list[FitResult]:
    """Return where each template's pods would go, as the scorer of a cluster answers."""
    settled = settled_members(map(pod_info, cluster.pods))
    return would_fit(placement_snapshot(cluster, policy), request, settled)
