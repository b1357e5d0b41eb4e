"""A cluster as the planner sees it: the pending units, and the decision for each in one cycle.

The decisions are made by the scorer's own scheduling cycle. Pure.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import NamedTuple

from msgspec import ValidationError, convert

from linkwise.cluster.gang import GangKey
from linkwise.cluster.objects.pod import Pod
from linkwise.manifest.lines import without_nulls
from linkwise.manifest.typed import read_as
from linkwise.manifest.value import Value
from linkwise.planning.cycle.cycle import SchedulingCycle, in_turns
from linkwise.planning.cycle.starvation import MIN_RESERVATION, assembled_since
from linkwise.planning.gang.crd import Gang, object_key, placed_size
from linkwise.planning.gang.exclusion import Exclusion, exclusion_id, exclusion_key
from linkwise.planning.gang.joint import all_joint
from linkwise.planning.gang.lost_members import lost_members, reserved_holding, running_member
from linkwise.planning.gang.owners import Owners
from linkwise.planning.gang.pod_info import PodInfo
from linkwise.planning.gang.unit import Unit, units_of
from linkwise.planning.gang.victim_choice import RunningUnits
from linkwise.planning.placement.result import Plan, Refusal
from linkwise.planning.placement.state.snapshot import Snapshot
from linkwise.planning.state.reserved_gpus import Place, Purpose, ReservedGPUs
from linkwise.planning.state.scheduler_nominations import (
    Cluster,
    is_nominated,
    reserve_for_scheduler,
)
from linkwise.runtime.process.clock import YEAR_10000
from linkwise.views.analysis.fit import placement_snapshot
from linkwise.views.analysis.nominations import Nomination, nominations_of
from linkwise.views.analysis.running import highest_priority, units_that_run
from linkwise.views.analysis.workload_owners import owners_of
from linkwise.views.files.current_cluster import CurrentCluster
from linkwise.views.files.objects import AnyObject
from linkwise.workloads.paths import path_in
from linkwise.workloads.pod_group import GROUPS, PodGroup, group_paths


class Decision(NamedTuple):
    """The outcome for one unit."""

    unit: Unit
    outcome: Plan | Refusal
    snapshot: Snapshot
    """The cluster before the decision, with all units that were planned earlier."""
    reserved_nodes: frozenset[str]
    """The nodes that are reserved for it, since it is starving."""


@dataclass(frozen=True)
class PlannerView:
    """A cluster as the planner sees it."""

    snapshot: Snapshot
    pods: Mapping[tuple[str, str], Pod]
    """By namespace and name."""
    pod_infos: tuple[PodInfo, ...]
    """The pods as the planner keeps them."""
    owners: Owners
    gangs: Mapping[tuple[str, str], Gang]
    """Gang objects, by namespace and name."""
    is_starving: Callable[[Unit], bool]
    """Return whether nodes are reserved for a unit because it has waited so long."""
    reserved: ReservedGPUs
    """GPUs that are reserved for members that running gangs lack, and for gangs for which others
    are evicted; the snapshot counts them as taken."""
    running: Callable[[], RunningUnits | None]
    """Return the units that hold GPUs; None where none may be evicted."""
    clock: float
    """The time [s since 1970]."""
    nominations: Mapping[GangKey, Nomination] = field(default_factory=dict)
    """The gangs for which others are evicted."""
    excluded: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """By id of a unit: the nodes that the leader excludes for it, until when [s since 1970]."""

    def exclusions(self, unit: Unit) -> Mapping[str, Exclusion]:
        """Return the nodes that the leader excludes for a unit."""
        nodes = self.excluded.get(exclusion_id(exclusion_key(unit)), {}) if self.excluded else {}
        current = {node: until for node, until in nodes.items() if self.clock < until < YEAR_10000}
        return {node: Exclusion(until) for node, until in current.items()}

    @cached_property
    def decisions(self) -> dict[tuple[str, str], Decision]:
        """The decision for each pending unit, by namespace and name of each of its pods."""
        cycle = SchedulingCycle(is_starving=self.is_starving, exclusions=self.exclusions)
        decisions, snapshot = {}, self.snapshot
        for unit in in_turns(units_of(self.pod_infos, self.owners)):
            seen = snapshot.without_holdings(self.reserved.open_to(unit.key, unit.priority))
            outcome = cycle.decide(seen, unit)
            nodes = cycle.reserved_nodes if cycle.starving is unit else frozenset[str]()
            decision = Decision(unit, outcome, seen, nodes)
            decisions.update({pod.key: decision for pod in (*unit.waiting, *unit.settled)})
            if isinstance(decision.outcome, Plan):
                snapshot = _reserving(decision.outcome.applied_to(seen), self.reserved)
        return decisions

    def refusal(self, decision: Decision) -> str | None:
        """Return why a unit waits; None if it fits.

        The leader alone knows until when others are evicted for it.
        """
        if isinstance(decision.outcome, Plan):
            return None
        nomination = self.nominations.get(decision.unit.key)
        return nomination.reason if nomination else decision.outcome.reason

    def gang_object(self, key: GangKey) -> Gang | None:
        """Return the Gang object of a unit."""
        return self.gangs.get(object_key(key))


def planner_view(current: CurrentCluster, clock: float) -> PlannerView:
    """Return the planner's view of a cluster.

    Args:
        current: The cluster.
        clock: The time [s since 1970].
    """
    gangs, ageing = _gangs(current), current.policy.policy.gangs.ageing_minutes * 60
    reserved_for = max(ageing, MIN_RESERVATION)

    def is_starving(unit: Unit) -> bool:
        # Earlier reservations are not recorded, so only the first one is known.
        gang = gangs.get(object_key(unit.key))
        since = assembled_since(unit, gang)
        return since is not None and ageing <= clock - since < ageing + reserved_for

    pods = {
        (pod.metadata.namespace or "default", pod.metadata.name): pod
        for pod in current.cluster.pods
    }
    infos, owners = planned_pods(current)
    snapshot = placement_snapshot(current.cluster, current.policy)
    reserved = _reserved(snapshot, gangs.values(), infos, owners)
    nominations = nominations_of(gangs.values(), infos, owners, snapshot.ledger.nodes)
    for each in nominations:
        reserved.set(each.key, each.priority, each.places, Purpose.NOMINATION)
    nodes = Cluster(snapshot.ledger.nodes.get, snapshot.tables.get, snapshot.preferences.mode)
    leaving = {info.uid for info in infos if info.is_ending}
    reserve_for_scheduler(reserved, filter(is_nominated, infos), nodes, leaving)
    snapshot = _reserving(snapshot, reserved)

    @cache
    def running() -> RunningUnits | None:
        highest = highest_priority(pod for pod in pods.values() if not pod.spec.node_name)
        preemption = current.policy.policy.gangs.preemption
        return units_that_run(
            current.cluster,
            current.objects,
            owners,
            preemption,
            highest=highest,
            now=clock,
            nominations=nominations,
        )

    by_key = {each.key: each for each in nominations}
    excluded = current.cluster.excluded
    return PlannerView(
        snapshot,
        pods,
        infos,
        owners,
        gangs,
        is_starving,
        reserved,
        running,
        clock,
        by_key,
        excluded,
    )


def planned_pods(current: CurrentCluster) -> tuple[tuple[PodInfo, ...], Owners]:
    """Return the pods of a cluster as the planner keeps them, and what is known of their owners."""
    # Of two pods of one name in a file the later one counts.
    by_name = {(info.namespace, info.name): info for info in current.cluster.pod_infos}
    infos = tuple(by_name.values())
    owners = owners_of(current.objects, infos)
    gangs = _gangs(current).values()
    owners = replace(
        owners,
        groups=dict(_group_sizes(current.objects, infos, owners)),
        placed=dict(filter(None, map(placed_size, gangs))),
    )
    return infos, replace(owners, joint=all_joint(infos, owners, gangs))


def _reserved(
    snapshot: Snapshot, gangs: Iterable[Gang], pods: Collection[PodInfo], owners: Owners
) -> ReservedGPUs:
    """Return the GPUs that are reserved by the plans of gangs whose status says so."""
    reserved = ReservedGPUs(lambda _: None)
    for gang in gangs:
        plan, key = gang.spec.plan, gang.key
        members = [pod for pod in pods if pod.gang == key.name and owners.key(pod) == key]
        sibling = running_member(members)
        if plan is None or sibling is None or not gang.status.reserved:
            continue
        nodes = snapshot.ledger.nodes
        holdings = (
            (member.node, reserved_holding(member, key, nodes[member.node].node, sibling))
            for member in lost_members(plan, members, len(plan.members))
            if member.node in nodes
        )
        places = tuple(Place(node, holding) for node, holding in holdings if holding)
        reserved.set(key, sibling.priority, places)
    return reserved


def _reserving(snapshot: Snapshot, reserved: ReservedGPUs) -> Snapshot:
    nodes = {name: reserved.held_on(node) for name, node in snapshot.ledger.nodes.items()}
    return replace(snapshot, ledger=replace(snapshot.ledger, nodes=nodes))


def _group_sizes(
    objects: Iterable[Value], pods: Iterable[PodInfo], owners: Owners
) -> Iterator[tuple[GangKey, int]]:
    """Yield the size that a PodGroup states for each gang whose pods name the group."""
    sizes: dict[str, int] = {}
    for value in objects:
        if value.need("kind").plain != "PodGroup":
            continue
        plain = without_nulls(value.mapping())
        metadata = read_as(AnyObject, plain, value).metadata
        group = read_as(PodGroup, plain, value)
        if group.members and not group.is_deleting:
            version, namespace = value.need("apiVersion").text(), metadata.namespace or "default"
            if path := path_in(namespace, version, GROUPS, metadata.name):
                sizes[path] = group.members
    for pod in pods if sizes else ():
        paths = group_paths(pod.waiting, pod.namespace) if pod.gang and pod.waiting else ()
        if members := next(filter(None, map(sizes.get, paths)), None):
            yield owners.key(pod), members


def _gangs(current: CurrentCluster) -> dict[tuple[str, str], Gang]:
    gangs: dict[tuple[str, str], Gang] = {}
    for plain in current.gangs:
        try:
            gang = convert(plain, Gang)
        except ValidationError:
            # Written by another version; the unit is then decided without it.
            continue
        gangs[gang.metadata.namespace, gang.metadata.name] = gang
    return gangs
