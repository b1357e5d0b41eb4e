"""Place pods that are about to be created, one unit after another. Pure.

Nothing is reserved. The result is what the cluster would give them now, without the nodes that are
reserved for a unit that has waited too long.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice

from msgspec import structs

from linkwise.cluster.gang import gang_mark, is_member
from linkwise.cluster.keys import GANG, GANG_KIND
from linkwise.cluster.objects.metadata import Owner, controller_of
from linkwise.cluster.objects.pod import Pod
from linkwise.cluster.requests.neighbors.namespaces import selecting
from linkwise.planning.cycle.claimants import Claimants
from linkwise.planning.cycle.cycle import Reservation
from linkwise.planning.gang.compact_pod import oversize_reason
from linkwise.planning.gang.joint import all_joint
from linkwise.planning.gang.owners import Owners
from linkwise.planning.gang.pod_info import PodInfo
from linkwise.planning.gang.pod_namespaces import with_namespaces
from linkwise.planning.gang.pod_volumes import with_present_volumes
from linkwise.planning.gang.unit import Unit, units_of
from linkwise.planning.placement.bandwidth import UNDEFINED, Bandwidth
from linkwise.planning.placement.baselines import IndexOrder, best_possible, index_order
from linkwise.planning.placement.pods.member import Member, new_member
from linkwise.planning.placement.result import Plan, Refusal
from linkwise.planning.placement.state.snapshot import Snapshot
from linkwise.planning.whatif.decisions import Decisions
from linkwise.workloads.members import ExpectedPods


@dataclass(frozen=True, slots=True)
class Intended:
    """A pod that asks for GPUs and is about to be created, as admission let it pass."""

    pod: Pod
    namespace: str
    owner: str = ""
    """Uid of its top owner: it distinguishes gangs of the same name."""
    declared: int | None = None
    """Number of pods with GPUs that the owner declares; None where it is unknown."""
    starts_with: int | None = None
    """How many of these suffice to start where they are a gang by their owner; None: all."""


@dataclass(frozen=True)
class UnitPlacement:
    """Node and GPUs of a gang, or of a pod on its own."""

    unit: Unit
    places: tuple[int, ...]
    """The indices of its pods among the given ones, in rank order."""
    plan: Plan | None
    reason: str | None
    """Why it is not placed; None where it is."""
    seen: Snapshot
    """The cluster when this was decided."""

    @property
    def name(self) -> str:
        """Name of the gang, or of the pod."""
        return self.unit.key.name

    @property
    def namespace(self) -> str:
        """Namespace of its pods."""
        return self.unit.key.namespace

    @property
    def members(self) -> tuple[Member, ...]:
        """Its pods in rank order, as the input of placement."""
        return self.unit.members

    @property
    def is_gang(self) -> bool:
        """False for a single pod."""
        return self.unit.is_gang


@dataclass(frozen=True)
class SimulatedUnit(UnitPlacement):
    """The placement of a unit, and its baselines, which are computed when they are read."""

    @cached_property
    def best_possible(self) -> Bandwidth:
        """The same members on the empty cluster."""
        planned = self.plan.bandwidth if self.plan else UNDEFINED
        return best_possible(self.seen, self.members, planned, self.index_order)

    @cached_property
    def index_order(self) -> IndexOrder | None:
        """Nodes by name and lowest free indices."""
        return index_order(self.seen, self.members)


def simulate(
    snapshot: Snapshot,
    pods: Sequence[Intended],
    settled: Iterable[PodInfo],
    reserved: Reservation | None = None,
) -> tuple[list[SimulatedUnit], Snapshot]:
    """Place pods in the order of priority, creation, and as given; a gang at its first pod.

    Each unit sees the cluster as the units before it left it.

    Args:
        snapshot: The cluster.
        pods: The pods that are created.
        settled: The members of gangs that have their GPUs already.
        reserved: Nodes that are reserved for a waiting unit: the planner places nothing there of
            the same or a lower priority. None: there are none.

    Returns:
        The result of each unit, in the order of decisions; the cluster afterwards.

    Cost: a plan for each unit.
    """
    results: list[SimulatedUnit] = []
    for result, after in simulate_each(snapshot, pods, settled, reserved):
        results.append(result)
        snapshot = after
    return results, snapshot


def simulate_each(
    snapshot: Snapshot,
    pods: Sequence[Intended],
    settled: Iterable[PodInfo],
    reserved: Reservation | None = None,
) -> Iterator[tuple[SimulatedUnit, Snapshot]]:
    """Yield the result of each unit and the cluster after it; as `simulate`.

    A result refers to the whole cluster of its moment, about 0.3 MB for 5,000 nodes.
    """
    decisions, claimants = Decisions(reserved), Claimants()
    for unit, every in _in_order(_units(pods, settled, snapshot)):
        blocked = claimants.blocker(unit)
        parts = [(unit, Refusal(blocked))] if blocked else decisions.decide(snapshot, unit)
        left = iter(every)
        for part, outcome in parts:
            places = tuple(islice(left, len(part.waiting)))
            placed = outcome if isinstance(outcome, Plan) else None
            reason = outcome.reason if isinstance(outcome, Refusal) else None
            result = SimulatedUnit(part, places, placed, reason, snapshot)
            if placed:
                snapshot = placed.applied_to(snapshot)
                claimants.plan(part)
                decisions.forget()
            yield result, snapshot


def settled_members(pods: Iterable[PodInfo]) -> list[PodInfo]:
    """Return the members of gangs that have their GPUs already, as the planner counts them."""
    return [pod for pod in pods if pod.gang is not None and pod.settled]


def intended_pod(intended: Intended, place: int = 0) -> PodInfo:
    """Return a pod as the planner would keep it once it is created.

    Gates of other systems are ignored: the result is for the time after they are removed.

    Args:
        intended: The pod.
        place: Its index, which distinguishes pods of the same name of two workloads.
    """
    pod, namespace, metadata = intended.pod, intended.namespace, intended.pod.metadata
    gates = [gate for gate in pod.spec.scheduling_gates or () if gate.name == GANG]
    uid = f"created-{place}"
    member = new_member(
        structs.replace(
            pod,
            metadata=structs.replace(metadata, uid=uid),
            spec=structs.replace(pod.spec, scheduling_gates=gates),
        ),
        namespace,
    )
    mark, _ = gang_mark(pod)
    gang = mark.name if mark and is_member(pod, member.request, mark) else None
    is_by_owner = gang is not None and GANG_KIND in pod.annotations
    suffices = is_by_owner and intended.starts_with is not None
    oversize = member.rules.oversize or oversize_reason(pod, member.demand)
    owner = Owner(uid=intended.owner) if intended.owner else None
    return PodInfo(
        namespace=namespace,
        name=metadata.name,
        uid=uid,
        version="",
        # A pod that is not created yet comes after every pod that is.
        created=metadata.creation_timestamp or "~",
        usage=None,
        gang=gang,
        controller=owner or controller_of(metadata.owner_references or ()),
        settled=False,
        stated=(mark.min_available or mark.total) if mark and not suffices else None,
        is_by_owner=is_by_owner,
        member=replace(member, gang=f"{namespace}/{gang}" if gang else None),
        unplannable=f"it is too large to plan: {oversize}" if oversize else None,
    )


def _units(pods: Sequence[Intended], settled: Iterable[PodInfo], snapshot: Snapshot) -> list[Unit]:
    select = selecting(snapshot.namespaces)
    intended_pods = (intended_pod(intended, place) for place, intended in enumerate(pods))
    created = [
        with_namespaces(with_present_volumes(pod, snapshot.volumes), select)
        for pod in intended_pods
    ]
    everything = (*created, *settled)
    owners = Owners(
        controllers={},
        declared={
            pod.controller.uid: intended.declared
            for pod, intended in zip(created, pods, strict=True)
            if pod.controller and intended.declared is not None
        },
    )
    expected = {
        pod.controller.uid: ExpectedPods(starts_with=intended.starts_with)
        for pod, intended in zip(created, pods, strict=True)
        if pod.controller and pod.is_by_owner and intended.starts_with is not None
    }
    # Where nothing states the size of a gang, these are all its members.
    present = Counter(owners.key(pod) for pod in everything if pod.gang is not None)
    sizes = {key: count for key, count in present.items() if key.owner not in owners.declared}
    owners = replace(owners, groups=sizes, expected=expected)
    return units_of(everything, replace(owners, joint=all_joint(everything, owners)))


def _in_order(units: Iterable[Unit]) -> list[tuple[Unit, tuple[int, ...]]]:
    """Return the units in the order of decisions, each with the indices of its pods."""
    places = [
        (unit, tuple(int(pod.uid.removeprefix("created-")) for pod in unit.waiting))
        for unit in units
    ]
    return sorted(places, key=lambda pair: (-pair[0].priority, pair[0].since, min(pair[1])))
