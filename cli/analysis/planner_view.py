"""A cluster as its planner sees it: what waits, whose turn it is, and what would become of it.

It is decided as the scorer decides it, by the scorer's own engine. Pure.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from msgspec import Struct, ValidationError, convert

from cli.live.current import Current
from cluster.gang import GangKey
from cluster.pod import Metadata, Owner, Pod
from manifest.lines import without_nulls
from manifest.typed import read_as
from manifest.value import Value
from scorer.cache.workloads import above_set
from scorer.gang.crd import Gang, name_of
from scorer.gang.owners import (
    Declaration,
    ExpectedPods,
    PodGroup,
    expected_pods,
    group_paths,
    members_of,
    path_of,
)
from scorer.gang.pod_info import PodInfo, controller_of, pod_info
from scorer.gang.unit import Owners, Unit, units_of
from scorer.placement.snapshot import Snapshot, snapshot_of
from scorer.queue.cycle import Decision, run_cycle
from scorer.queue.starvation import assembled_since
from scorer.timings import Timings


@dataclass(frozen=True)
class PlannerView:
    """A cluster, as far as it is asked about."""

    snapshot: Snapshot
    pods: Mapping[tuple[str, str], Pod]
    """By namespace and name."""
    owners: Owners
    gangs: Mapping[tuple[str, str], Gang]
    """Gang objects, by namespace and name."""
    aged: Callable[[Unit], bool]
    """Whether nodes are reserved for a unit, since it has waited so long."""

    @cached_property
    def seen(self) -> tuple[PodInfo, ...]:
        """The pods as the planner sees them."""
        return tuple(pod_info(pod) for pod in self.pods.values())

    @cached_property
    def decisions(self) -> dict[tuple[str, str], Decision]:
        """What becomes of everything that waits, in turn, by namespace and name of its pods."""
        decisions = run_cycle(
            self.snapshot,
            units_of(self.seen, self.owners),
            is_starving=self.aged,
            cached_refusals={},
            excluded_nodes={},
        )
        return {
            pod.key: decision
            for decision in decisions
            for pod in (*decision.unit.waiting, *decision.unit.settled)
        }

    def gang_object(self, key: GangKey) -> Gang | None:
        """Return what the planner told of a gang, or of a pod on its own."""
        return self.gangs.get((key.namespace, name_of(key)))


def planner_view(now: Current, clock: float) -> PlannerView:
    """Return what the planner would see of a cluster.

    Args:
        now: The cluster.
        clock: The time [s since 1970].
    """
    policy = now.policy.policy
    snapshot = replace(
        snapshot_of(now.cluster.ledger),
        placement=policy.placement.strategy,
        domains=policy.gangs.domains,
    )

    gangs, ageing = _gangs(now), policy.gangs.ageing_minutes * 60
    reserved_for = max(ageing, Timings().min_reservation)

    def aged(unit: Unit) -> bool:
        # How often nodes were reserved before stands nowhere: only the first time is sure.
        gang = gangs.get((unit.key.namespace, name_of(unit.key)))
        since = assembled_since(unit, gang)
        return since is not None and ageing <= clock - since < ageing + reserved_for

    pods = {
        (pod.metadata.namespace or "default", pod.metadata.name): pod for pod in now.cluster.pods
    }
    owners = _owners(now.objects, map(pod_info, pods.values()))
    groups = dict(_groups(now.objects, pods.values(), owners))
    return PlannerView(snapshot, pods, replace(owners, groups=groups), gangs, aged)


class _Object(Struct, frozen=True):
    metadata: Metadata = Metadata()


def _owners(objects: Sequence[Value], pods: Iterable[PodInfo]) -> Owners:
    """Return what the workloads among objects, and pods that lead others, tell of gangs."""
    above: dict[str, Owner | None] = {one.uid: one.controller for one in pods if one.leads}
    declared: dict[str, int] = {}
    makes: dict[str, ExpectedPods] = {}
    for value in objects:
        plain = without_nulls(value.mapping())
        metadata = read_as(_Object, plain, value).metadata
        kind, version = value.need("kind").text(), value.need("apiVersion").text()
        owner = Owner(api_version=version, kind=kind, name=metadata.name, uid=metadata.uid)
        if path_of(owner, "") is None:
            continue
        controller = controller_of(metadata.owner_references or ())
        above[metadata.uid] = above_set(controller) if kind == "StatefulSet" else controller
        declaration = read_as(Declaration, plain, value)
        if members := members_of(declaration, metadata.uid):
            declared[metadata.uid] = members
            makes[metadata.uid] = expected_pods(declaration, owner)
    return Owners(above, declared, makes)


def _groups(
    objects: Iterable[Value], pods: Iterable[Pod], owners: Owners
) -> Iterator[tuple[GangKey, int]]:
    """Yield what the PodGroups among objects say of the gangs whose pods name them."""
    told: dict[str, int] = {}
    for value in objects:
        if value.need("kind").plain != "PodGroup":
            continue
        plain = without_nulls(value.mapping())
        at, group = read_as(_Object, plain, value).metadata, read_as(PodGroup, plain, value)
        if group.members and not group.leaves:
            home = f"/apis/{value.need('apiVersion').text()}/namespaces/{at.namespace or 'default'}"
            told[f"{home}/podgroups/{at.name}"] = group.members
    for one in map(pod_info, pods if told else ()):
        paths = group_paths(one.waiting, one.namespace) if one.gang and one.waiting else ()
        if members := next(filter(None, map(told.get, paths)), None):
            yield owners.key(one), members


def _gangs(now: Current) -> dict[tuple[str, str], Gang]:
    found: dict[tuple[str, str], Gang] = {}
    for plain in now.gangs:
        try:
            gang = convert(plain, Gang)
        except ValidationError:
            # Another version's; the engine says as much.
            continue
        found[gang.metadata.namespace, gang.metadata.name] = gang
    return found
