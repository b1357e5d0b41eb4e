"""Where pods would go on the cluster that a file describes."""

from dataclasses import replace

from cli.files.inputs import Inputs
from cluster.whatif_api import FitQuestion, FitResult
from policy.snapshot import PolicySnapshot
from scorer.gang.pod_info import pod_info
from scorer.placement.snapshot import Snapshot, snapshot_of
from scorer.whatif.fit import would_fit
from scorer.whatif.simulate import settled_of
from topology.choice import Mode


def cluster_of(inputs: Inputs, mode: Mode = Mode.KEEP) -> Snapshot:
    """Return the cluster as placement sees it.

    Args:
        inputs: With a cluster.
        mode: What a choice of GPUs prefers.
    """
    if inputs.cluster is None:
        raise ValueError("there is no cluster among the files")
    policy: PolicySnapshot = inputs.policy
    return replace(
        snapshot_of(inputs.cluster.ledger),
        mode=mode,
        placement=policy.policy.placement.strategy,
        domains=policy.policy.gangs.domains,
    )


def placements(inputs: Inputs, question: FitQuestion) -> list[FitResult]:
    """Return what would become of each template's pods, as the scorer of a cluster answers."""
    pods = inputs.cluster.pods if inputs.cluster else ()
    return would_fit(cluster_of(inputs), question, settled_of(map(pod_info, pods)))
