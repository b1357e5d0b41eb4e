"""Would pods fit that are not there yet, where, and what would be left? Pure.

One answer for everybody who asks: dry runs on a cluster, and `check` with a cluster in a file.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from msgspec.structs import replace

from cluster.node import Mode
from cluster.node_ledger import NodeLedger
from cluster.whatif_api import FitQuestion, FitResult, FitTemplate, NodeLeft, PodFit
from scorer.cache.cluster_state import ClusterState
from scorer.gang.unit import link_of
from scorer.placement.baselines import never_fits
from scorer.placement.explain import notes_on, why_these
from scorer.placement.member import Member
from scorer.placement.result import Placement
from scorer.placement.snapshot import Snapshot
from scorer.queue.cycle import Reservation
from scorer.whatif.simulate import (
    GangResult,
    Intended,
    Settled,
    gang_name,
    settled_of,
    simulate,
)

BY_COUNT = "a guess by count: kube-scheduler chooses the node, and NVIDIA's plugin the GPUs"
BY_SCHEDULER = "kube-scheduler chooses among the nodes that fit, by rules of its own, too"

_Placements: TypeAlias = Sequence[Placement | None]
"""Of each pod; None: it goes nowhere."""


def would_fit(
    snapshot: Snapshot,
    question: FitQuestion,
    settled: Settled,
    reserved: Reservation | None = None,
) -> list[FitResult]:
    """Return what would become of each template's pods, were all of them created now.

    Args:
        snapshot: The cluster.
        question: Which pods.
        settled: The members of gangs that are there already.
        reserved: Nodes that are reserved for one that waits; None: there are none.

    Raises:
        Overdue: The snapshot's time is over; that is looked at before each node that is asked.

    Cost: a plan for each gang and each pod on its own, twice where whole GPUs are asked for, and
        some ms for each template.
    """
    pods = [one for asked in question.templates for one in _intended(asked)]
    results, after = simulate(snapshot, pods, settled, reserved)
    decided = {place: result for result in results for place in result.places}
    found: list[FitResult] = []
    start = 0
    for asked in question.templates:
        places = range(start, start + len(asked.names))
        units = [decided[place] for place in places]
        placements = [_placement(decided[place], place) for place in places]
        found.append(_fit(asked, units, placements, _left(snapshot, after, placements)))
        start = places.stop
    return found


def settled_in(state: ClusterState, question: FitQuestion) -> Settled:
    """Return the members that are there already of the gangs that are asked about."""
    named = (gang_name(asked.pod, asked.pod.metadata.namespace) for asked in question.templates)
    groups = {gang[:2] for gang in named if gang}
    return settled_of(pod for group in groups for pod in state.group(group))


def left_on(before: NodeLedger, after: NodeLedger) -> NodeLeft:
    """Return what a node has free at two moments."""
    mode, cards = before.node.mode, range(len(before.node.cards))
    measures = (
        ("memory", NodeLedger.memory_free, mode.shares_memory),
        ("core", NodeLedger.core_free, mode.shares_compute),
        ("replicas", NodeLedger.replicas_free, mode is Mode.TIMESLICE),
    )
    free = {
        f"{what}_free_{when}": [of(node, i) for i in cards]
        for what, of, applies in measures
        for when, node in (("before", before), ("after", after))
        if applies
    }
    totals = before.gpus_free, after.gpus_free
    return replace(NodeLeft(before.node.name, mode.value, len(cards), *totals), **free)


def _intended(asked: FitTemplate) -> Iterator[Intended]:
    for name in asked.names:
        pod = replace(asked.pod, metadata=replace(asked.pod.metadata, name=name))
        yield Intended(pod, pod.metadata.namespace, asked.owner, asked.members)


def _placement(result: GangResult, place: int) -> Placement | None:
    return result.plan.placements[result.places.index(place)] if result.plan else None


def _left(before: Snapshot, after: Snapshot, placements: _Placements) -> list[NodeLeft]:
    used = sorted({one.node for one in placements if one})
    return [left_on(before.ledger.nodes[name], after.ledger.nodes[name]) for name in used]


def _fit(
    asked: FitTemplate, units: Sequence[GangResult], placements: _Placements, nodes: list[NodeLeft]
) -> FitResult:
    """Return what becomes of one template's pods.

    Args:
        asked: The template.
        units: With whom each pod is decided.
        placements: Where each goes.
        nodes: Those they go to.
    """
    first, *others = {unit.places: unit for unit in units}.values()
    told = (note for one in (first, *others) if one.plan for note in notes_on(one.seen, one.plan))
    speeds = [unit.plan.bandwidth for unit in (first, *others) if unit.plan]
    refused = next((unit for unit in units if unit.reason), None)
    known = [speed for speed in speeds if speed is not None]
    return FitResult(
        fits=None not in placements,
        gang=first.name if first.is_gang else None,
        pods=[_pod(*pair) for pair in zip(asked.names, placements, strict=True)],
        nodes=nodes,
        bandwidth=_tenths(min(known, default=None)),
        best_possible=_tenths(first.best_possible),
        why=why_these(first.plan) if first.plan and not others else None,
        notes=list(dict.fromkeys((*told, *_left_to_others(first.members[0])))),
        reason=refused.reason if refused else None,
        never=refused is not None and _never_fits(refused),
    )


def _never_fits(unit: GangResult) -> bool:
    link = link_of(unit.members, is_gang=unit.is_gang)
    return never_fits(unit.seen, unit.members, link)


def _pod(name: str, placement: Placement | None) -> PodFit:
    if placement is None:
        return PodFit(name, None, None)
    chosen = placement.member.request.places
    return PodFit(name, placement.node, list(placement.gpus) if chosen else None)


def _left_to_others(member: Member) -> Iterable[str]:
    """Say what is chosen for such a pod by others than the planner."""
    if not member.request.places:
        return (BY_COUNT,)
    return () if member.pod.spec.is_gated else (BY_SCHEDULER,)


def _tenths(bandwidth: float | None) -> float | None:
    return None if bandwidth is None else round(bandwidth, 1)
