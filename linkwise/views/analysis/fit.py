"""Places pods that do not exist yet on the cluster in a file, with the scorer's engine. Pure."""

from dataclasses import replace

from linkwise.cluster.whatif_api import FitRequest, FitResult
from linkwise.planning.gang.victim_choice import RunningUnits
from linkwise.planning.placement.options import preferences_of
from linkwise.planning.placement.state.snapshot import Snapshot, snapshot_of
from linkwise.planning.whatif.fit import would_fit
from linkwise.planning.whatif.simulate import settled_members
from linkwise.policy.snapshot import PolicySnapshot
from linkwise.topology.choice import ChoiceMode
from linkwise.views.analysis.running import highest_priority, units_that_run
from linkwise.views.analysis.workload_owners import owners_of
from linkwise.views.files.cluster_file import Cluster
from linkwise.views.files.inputs import Inputs


def placement_snapshot(
    cluster: Cluster, policy: PolicySnapshot, mode: ChoiceMode = ChoiceMode.KEEP
) -> Snapshot:
    """Return a cluster for placement under a policy.

    Args:
        cluster: The cluster.
        policy: Gives placement strategy, topology domains and the bandwidth of NICs.
        mode: What the choice of GPUs prefers.
    """
    preferences = preferences_of(policy.policy, mode)
    snapshot = snapshot_of(
        cluster.ledger, preferences=preferences, class_resources=cluster.class_resources
    )
    return replace(snapshot, volumes=cluster.volumes, namespaces=cluster.namespaces)


def fit_results(
    inputs: Inputs, cluster: Cluster, request: FitRequest, clock: float
) -> list[FitResult]:
    """Return where each template's pods would go, as the scorer of a cluster answers.

    Args:
        inputs: The policy, and the other objects of the cluster.
        cluster: The cluster.
        request: The templates.
        clock: The time [s since 1970].
    """
    pods = cluster.pod_infos

    def running() -> RunningUnits | None:
        preemption, owners = inputs.policy.policy.gangs.preemption, owners_of(inputs.stored, pods)
        highest = highest_priority(template.pod for template in request.templates)
        return units_that_run(
            cluster, inputs.stored, owners, preemption, highest=highest, now=clock
        )

    snapshot = placement_snapshot(cluster, inputs.policy)
    return would_fit(snapshot, request, settled_members(pods), running=running)
