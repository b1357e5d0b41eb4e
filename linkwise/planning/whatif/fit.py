"""Report whether pods that do not exist yet would fit, where, and what would stay free. Pure.

Dry runs on a cluster and `check` with a cluster in a file use it.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import zip_longest
from operator import attrgetter
from typing import TypeAlias

from msgspec import UNSET
from msgspec.structs import replace

from linkwise.cluster.account.node_ledger import NodeLedger
from linkwise.cluster.allocations.gpus import number_counted
from linkwise.cluster.keys import NVIDIA_GPU
from linkwise.cluster.mode import NodeMode
from linkwise.cluster.whatif_api import (
    FitRequest,
    FitResult,
    FitTemplate,
    NodeLeft,
    PodFit,
    Preempted,
)
from linkwise.planning.cycle.cycle import Reservation
from linkwise.planning.gang.plan_record import tenths
from linkwise.planning.gang.pod_info import PodInfo
from linkwise.planning.gang.victim_choice import RunningUnits
from linkwise.planning.placement.bandwidth import Bandwidth
from linkwise.planning.placement.baselines import never_fits
from linkwise.planning.placement.explain import notes_on, why_these
from linkwise.planning.placement.pods.member import Member
from linkwise.planning.placement.result import Placement
from linkwise.planning.placement.state.node_cache import DeadlineExceeded
from linkwise.planning.placement.state.snapshot import Snapshot
from linkwise.planning.state.cluster_state import ClusterState
from linkwise.planning.whatif.preemption import Preemptions
from linkwise.planning.whatif.simulate import (
    Intended,
    SimulatedUnit,
    intended_pod,
    settled_members,
    simulate,
)

BY_COUNT = "a guess by count: kube-scheduler chooses the node, and NVIDIA's plugin the GPUs"
BY_SCHEDULER = "kube-scheduler chooses among the nodes that fit, by rules of its own, too"

_Placements: TypeAlias = Sequence[Placement | None]
"""Of each pod; None: it is not placed."""


def would_fit(
    snapshot: Snapshot,
    request: FitRequest,
    settled: Iterable[PodInfo],
    reserved: Reservation | None = None,
    running: Callable[[], RunningUnits | None] = lambda: None,
) -> list[FitResult]:
    """Return the placement of each template's pods as if all of them were created now.

    Args:
        snapshot: The cluster.
        request: The templates.
        settled: The members of gangs that have their GPUs already.
        reserved: Nodes that are reserved for a waiting unit; None: there are none.
        running: Return the units that may be evicted for others; None: none may. It is called if
            a unit does not fit.

    Raises:
        DeadlineExceeded: The snapshot's time is over; it is checked before each node.

    Cost: a plan for each gang and each pod on its own, twice where whole GPUs are asked for, and
        some ms for each template.
    """
    pods = [pod for template in request.templates for pod in _intended(template)]
    results, after = simulate(snapshot, pods, settled, reserved)
    preempted = _preempted(results, running)
    decided = {place: result for result in results for place in result.places}
    found: list[FitResult] = []
    start = 0
    for template in request.templates:
        places = range(start, start + len(template.names))
        units = [decided[place] for place in places]
        placements = [_placement(decided[place], place) for place in places]
        fit = _fit(template, units, placements, _left(snapshot, after, placements))
        evicted = [one for key in dict.fromkeys(u.places for u in units) for one in preempted[key]]
        found.append(replace(fit, preempts=evicted or UNSET))
        start = places.stop
    return found


def _preempted(
    units: Iterable[SimulatedUnit], running: Callable[[], RunningUnits | None]
) -> dict[tuple[int, ...], tuple[Preempted, ...]]:
    """Return the units that would be evicted for each unit, by its places."""
    preempted: dict[tuple[int, ...], tuple[Preempted, ...]] = defaultdict(tuple)
    refused = [unit for unit in units if unit.plan is None]
    known = running() if refused else None
    # What fits is known by now: it is not withheld because the search takes too long.
    if known is not None:
        preemptions = Preemptions(known)
        with suppress(DeadlineExceeded):
            for unit in refused:
                preempted[unit.places] = preemptions.find(unit.seen, unit.unit.least)
    return preempted


def settled_in(state: ClusterState, request: FitRequest) -> list[PodInfo]:
    """Return the members of the templates' gangs that have their GPUs already."""
    pods = [intended_pod(pod) for template in request.templates for pod in _intended(template)]
    groups = {(pod.namespace, pod.gang) for pod in pods if pod.gang is not None}
    return settled_members(pod for group in groups for pod in state.groups.of(group))


def left_on(before: NodeLedger, after: NodeLedger) -> NodeLeft:
    """Return the free amounts of a node before and after."""
    mode, cards = before.node.mode, range(len(before.node.cards))
    measures = (
        ("memory", NodeLedger.memory_free, mode.shares_memory),
        ("core", NodeLedger.core_free, mode.shares_compute),
        ("replicas", NodeLedger.replicas_free, mode is NodeMode.TIMESLICE),
    )
    free = {
        f"{amount}_free_{when}": [free_on(node, i) for i in cards]
        for amount, free_on, applies in measures
        for when, node in (("before", before), ("after", after))
        if applies
    }
    totals = before.gpus_free, after.gpus_free
    left = replace(NodeLeft(before.node.name, mode.value, len(cards), *totals), **free)
    if (parts := before.node.parts) is None:
        return left
    unused = before.counted_free(NVIDIA_GPU), after.counted_free(NVIDIA_GPU)
    return replace(left, parts=parts.words, parts_free_before=unused[0], parts_free_after=unused[1])


def _intended(template: FitTemplate) -> Iterator[Intended]:
    metadata = template.pod.metadata
    for name, labels in zip_longest(template.names, template.labels[: len(template.names)]):
        own = {**(metadata.labels or {}), **(labels or {})}
        pod = replace(template.pod, metadata=replace(metadata, name=name, labels=own))
        yield Intended(
            pod, metadata.namespace, template.owner, template.members, template.starts_with
        )


def _placement(result: SimulatedUnit, place: int) -> Placement | None:
    return result.plan.placements[result.places.index(place)] if result.plan else None


def _left(before: Snapshot, after: Snapshot, placements: _Placements) -> list[NodeLeft]:
    used = sorted({placement.node for placement in placements if placement})
    return [left_on(before.ledger.nodes[name], after.ledger.nodes[name]) for name in used]


def _fit(
    template: FitTemplate,
    units: Sequence[SimulatedUnit],
    placements: _Placements,
    nodes: list[NodeLeft],
) -> FitResult:
    """Return the result of one template.

    Args:
        template: The template.
        units: The unit of each of its pods.
        placements: The placement of each pod.
        nodes: The nodes of these placements.
    """
    first, *others = {unit.places: unit for unit in units}.values()
    plans = [(unit.seen, unit.plan) for unit in (first, *others) if unit.plan]
    notes = (note for seen, plan in plans for note in notes_on(seen, plan))
    refused = next((unit for unit in units if unit.reason), None)
    best = first.best_possible
    unknown = any(plan.bandwidth.sets_unknown for _, plan in plans)
    known = [plan.bandwidth for _, plan in plans if plan.bandwidth.value is not None]
    least = Bandwidth(sets_unknown=unknown)
    if known and not unknown:
        least = min(known, key=attrgetter("value"))
    return FitResult(
        fits=None not in placements,
        gang=first.name if first.is_gang else None,
        pods=[_pod(*pair) for pair in zip(template.names, placements, strict=True)],
        nodes=nodes,
        bandwidth=tenths(least.value),
        best_possible=tenths(best.value),
        why=why_these(first.plan) if first.plan and not others else None,
        notes=list(dict.fromkeys((*notes, *_delegated(first.members[0])))),
        reason=refused.reason if refused else None,
        never=refused is not None and _never_fits(refused),
        bandwidth_note=least.note,
        bandwidth_nodes=least.nodes,
        best_possible_nodes=best.nodes,
    )


def _never_fits(unit: SimulatedUnit) -> bool:
    return never_fits(unit.seen, unit.unit.least.members, unit.unit.link)


def _pod(name: str, placement: Placement | None) -> PodFit:
    if placement is None:
        return PodFit(name, None, None)
    gpus = placement.gpus
    return PodFit(
        name, placement.node, list(gpus.indices) or None, count=number_counted(gpus) or None
    )


def _delegated(member: Member) -> Iterable[str]:
    """Return what other components than the planner choose for such a pod."""
    if not member.request.places:
        return (BY_COUNT,)
    return () if member.pod.spec.is_gated else (BY_SCHEDULER,)
