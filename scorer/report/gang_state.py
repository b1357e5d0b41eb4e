"""How a gang stands now: what its pods tell, whatever was planned before. Pure."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from cluster.record import Allocation
from cluster.request import Family
from scorer.cache.cluster_state import ClusterState
from scorer.gang.crd import GangPlan, Held, NodeGPUs, Phase, held_nodes
from scorer.gang.pod_info import PodInfo
from scorer.placement.node_assignment import Candidate, NodeAssignment, bandwidth_over
from topology.machine import mask_of


@dataclass(frozen=True, slots=True)
class GangState:
    """What is so."""

    phase: Phase
    members: tuple[int, int | None]
    """How many are there while some wait, else bound, of how many, if that is known."""
    held: Held
    reason: str
    """Why it is not placed, as far as its pods tell; empty where it is."""

    @property
    def lacks_members(self) -> bool:
        """Its owner may want fewer than are missed, or none."""
        there, needed = self.members
        return self.phase in _LACK and (needed is None or there < needed)


_LACK = frozenset({Phase.ASSEMBLING, Phase.GONE, Phase.SUSPENDED})


def gang_state(
    pods: Collection[PodInfo],
    needed: int | None,
    plan: GangPlan | None,
    state: ClusterState,
    *,
    is_suspended: bool,
) -> GangState:
    """Return how a gang stands.

    Args:
        pods: All of its pods.
        needed: How many members there must be; None where nothing tells.
        plan: The last one.
        state: The nodes.
        is_suspended: Its owner makes no pods for now.

    Cost: its pods.
    """
    settled = [pod for pod in pods if pod.settled]
    waiting = sum(pod.waiting is not None for pod in pods)
    there = [pod for pod in settled if pod.usage is not None]
    held = _held(there, plan, state)
    if waiting:
        return _waits(len(settled) + waiting, needed, held)
    if not there:
        return _nobody(len(settled), needed, is_suspended=is_suspended)
    bound = sum(pod.bound for pod in settled)
    if bound < len(settled):
        return GangState(Phase.COMMITTING, (bound, needed), held, "")
    if needed is not None and bound < needed:
        reason = f"{bound} of {needed} members are there"
        return GangState(Phase.ASSEMBLING, (bound, needed), held, reason)
    return GangState(Phase.PLACED, (bound, needed), held, "")


def _waits(present: int, needed: int | None, held: Held) -> GangState:
    if needed is None or present < needed:
        reason = f"{present} of {needed or '?'} members"
        return GangState(Phase.ASSEMBLING, (present, needed), held, reason)
    return GangState(Phase.WAITING, (present, needed), held, "queued")


def _nobody(succeeded: int, needed: int | None, *, is_suspended: bool) -> GangState:
    """Return how a gang stands of which no member has GPUs or waits for them."""
    members = succeeded, needed
    if succeeded >= (needed or 1):
        return GangState(Phase.FINISHED, members, Held(), "")
    if is_suspended:
        reason = "its owner is suspended, or makes no pods"
        return GangState(Phase.SUSPENDED, members, Held(), reason)
    ended = f"; {succeeded} of its members have succeeded" if succeeded else ""
    return GangState(Phase.GONE, members, Held(), f"none of its pods is there{ended}")


def _held(there: Sequence[PodInfo], plan: GangPlan | None, state: ClusterState) -> Held:
    """Return what members have that are there."""
    claims = [(pod.uid, pod.usage) for pod in there if pod.usage and pod.usage.target]
    nodes = held_nodes(
        (one.target, [share.i for share in one.record.gpus])
        if isinstance(one.record, Allocation)
        else (one.target, ())
        for _, one in claims
    )
    if plan is not None and plan.held.nodes == nodes:
        # Of the same GPUs; it may know more of NICs.
        return plan.held
    if not all(one.family is Family.WHOLE for _, one in claims):
        return Held(nodes)
    return Held(nodes, _bandwidth(nodes, state))


def _bandwidth(nodes: Sequence[NodeGPUs], state: ClusterState) -> float | None:
    """Return the modelled bandwidth over whole GPUs [GB/s]; None where a node is not known."""
    seats: list[NodeAssignment] = []
    for one in nodes:
        ledger, table = state.ledger(one.node), state.table(one.node)
        if ledger is None or table is None or max(one.gpus, default=0) >= len(ledger.node.cards):
            return None
        seats.append(NodeAssignment(Candidate(ledger, table, 0), 0, mask_of(one.gpus)))
    bandwidth = bandwidth_over(seats, state.preferences.nic_bandwidth)
    return None if bandwidth is None else round(bandwidth, 1)
