"""A plan in its Gang: conversion from and to the placements of the planner."""

from collections.abc import Iterable
from typing import NamedTuple

from msgspec import structs

from linkwise.cluster.allocations.gpus import NO_GPUS, Counted, Exact, GPUShare
from linkwise.cluster.allocations.record import Allocation
from linkwise.cluster.keys import NVIDIA_GPU
from linkwise.cluster.nodes.node import Node
from linkwise.cluster.requests.request import Family
from linkwise.planning.gang.crd_plan import GangPlan, PlannedPod, planned_pod
from linkwise.planning.gang.pod_info import PodInfo
from linkwise.planning.gang.unit import Unit
from linkwise.planning.placement.bandwidth import SETS_UNKNOWN, UNDEFINED, Bandwidth
from linkwise.planning.placement.filtering.feasibility import feasibility_of
from linkwise.planning.placement.placements import new_plan
from linkwise.planning.placement.pods.group import new_group
from linkwise.planning.placement.pods.member import Member
from linkwise.planning.placement.result import Placement, Plan
from linkwise.planning.placement.state.selected_nodes import selected_by
from linkwise.planning.placement.state.snapshot import Snapshot


class RecordedBandwidths(NamedTuple):
    """The bandwidths in a plan that was read; undefined where one is missing."""

    planned: Bandwidth
    best_possible: Bandwidth
    index_order: Bandwidth


def plan_order(plan_id: str) -> list[tuple[int, str]]:
    """Return what orders plans by their time: the term, and a number in this term."""
    return [(len(part), part) for part in plan_id.split("-")]


def plan_of(plan: Plan, plan_id: str) -> GangPlan:
    """Return a plan as it is written, without baselines.

    Args:
        plan: The placements of the members.
        plan_id: Different for each plan; the pods' records contain it.
    """
    return GangPlan(
        id=plan_id,
        exact=plan.exact,
        members=tuple(_planned(placement) for placement in plan.placements),
        bandwidth=tenths(plan.bandwidth.value),
        bandwidth_note=plan.bandwidth.note,
        domain=plan.domain,
    )


def with_baselines(plan: GangPlan, best_possible: Bandwidth, index_order: Bandwidth) -> GangPlan:
    """Return a plan with bandwidths to compare it with.

    Args:
        plan: As it is written.
        best_possible: Bandwidth on the empty cluster.
        index_order: Bandwidth on nodes by name and lowest free indices.
    """
    return structs.replace(
        plan,
        best_possible=tenths(best_possible.value),
        best_possible_nodes=best_possible.nodes,
        index_order=tenths(index_order.value),
        index_order_nodes=index_order.nodes,
    )


def recorded_bandwidths(plan: GangPlan) -> RecordedBandwidths:
    """Return the bandwidths of a plan that was read."""
    nodes = len(plan.nodes)
    # Of a plan on one node it is not recorded whether the NICs are known.
    nic_unknown = plan.bandwidth_note is not None or nodes == 1

    def baseline(value: float | None, nodes: int | None) -> Bandwidth:
        if value is None or nodes is None:
            return UNDEFINED
        return Bandwidth(value, nodes, nodes > 1 and nic_unknown)

    planned = baseline(plan.bandwidth, nodes)
    if planned.value is None:
        planned = Bandwidth(sets_unknown=plan.bandwidth_note == SETS_UNKNOWN)
    return RecordedBandwidths(
        planned,
        baseline(plan.best_possible, plan.best_possible_nodes),
        baseline(plan.index_order, plan.index_order_nodes),
    )


def placement_of(planned: PlannedPod, member: Member, node: Node) -> Placement:
    """Return the placement of a member by a plan that was read.

    Args:
        planned: The plan's entry for the pod's uid.
        member: The pod.
        node: The node of this entry.

    Raises:
        IndexError: The node has fewer GPUs now.
    """
    request = member.request
    if isinstance(planned.gpus, Counted):
        return Placement(member, planned.node, planned.gpus)
    is_share = request.family is Family.SHARE
    memory = request.memory_per_card if is_share else None
    core = (request.core_per_card or None) if is_share else None
    shares = (GPUShare(i, node.cards[i].uuid, memory, core) for i in planned.indices)
    return Placement(member, planned.node, Exact(tuple(shares)))


def remaining_placements(
    plan: GangPlan, unit: Unit, snapshot: Snapshot
) -> tuple[Placement, ...] | None:
    """Return the placements that an interrupted plan still has for the pods that wait.

    None: it has none for one of them, or its GPUs are not free any more.
    """
    planned = {member.uid: member for member in plan.members}
    if not all(pod.uid in planned and not pod.unplannable for pod in unit.waiting):
        return None
    nodes = snapshot.ledger.nodes
    try:
        placements = tuple(
            placement_of(planned[pod.uid], member, nodes[planned[pod.uid].node].node)
            for pod, member in zip(unit.waiting, unit.waiting_members, strict=True)
        )
        held = snapshot.hold_all((p.node, p.holding) for p in placements)
        counted = {each.node for each in placements if isinstance(each.gpus, Counted)}
        if any(held.ledger.nodes[name].counted_free(NVIDIA_GPU) < 0 for name in counted):
            return None
    except (KeyError, IndexError, ValueError):
        return None
    return placements


def reserved_plan(plan: GangPlan | None, unit: Unit, snapshot: Snapshot) -> Plan | None:
    """Return the plan of a late launcher that waits now: the place that was planned for it.

    None: the unit is something else, or the launcher does not fit there any more.
    """
    places = {member.pod: member for member in plan.members if not member.uid} if plan else {}
    controllers = [pod.controller.name for pod in unit.waiting if pod.controller]
    planned = places.get(controllers[0]) if len(controllers) == len(unit.members) == 1 else None
    ledger = snapshot.ledger.nodes.get(planned.node) if planned else None
    if planned is None or ledger is None:
        return None
    member, here = unit.members[0], snapshot.only(planned.node)
    if len(planned.gpus) != member.request.gpus:
        return None
    try:
        placement = placement_of(planned, member, ledger.node)
        here.hold_all([(placement.node, placement.holding)])
    except (IndexError, ValueError):
        return None
    seen = selected_by(here, member.needs)
    fits = feasibility_of(seen, new_group((member,))).feasible.size
    return new_plan(snapshot, (placement,), exact=True) if fits else None


def plan_from_records(plan_id: str, pods: Iterable[PodInfo]) -> GangPlan:
    """Return a plan from the records of its pods: for a single pod, or if the Gang was deleted."""
    members = tuple(
        planned_pod(pod.name, pod.uid, record.node, record.gpus)
        for pod in pods
        if (record := pod.allocation)
    )
    return GangPlan(plan_id, exact=True, members=members)


def siblings_of(pods: Iterable[PodInfo]) -> list[Allocation]:
    """Return nodes and GPUs of the members of a gang that are placed."""
    return [
        Allocation(usage.target, usage.allocation.gpus if usage.allocation else NO_GPUS)
        for usage in (pod.usage for pod in pods)
        if usage is not None and usage.target
    ]


def plan_id_of(pod: PodInfo) -> str | None:
    """Return the id of the plan by which a pod has its GPUs."""
    return pod.allocation.plan if pod.allocation else None


def _planned(placement: Placement) -> PlannedPod:
    metadata = placement.member.pod.metadata
    return planned_pod(metadata.name, metadata.uid, placement.node, placement.gpus)


def tenths(bandwidth: float | None) -> float | None:
    """Return a bandwidth as it is reported [GB/s], in tenths."""
    return None if bandwidth is None else round(bandwidth, 1)
