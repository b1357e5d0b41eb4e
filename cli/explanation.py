"""Why a pod or a gang is where it is, or why it is nowhere yet: the planner's own engine, asked.

What waits is decided as the scorer decides it, in turn with everything else that waits. What is
placed is decided again on the cluster without it, and compared with its record. Pure.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property

from cli.remedy import remedies
from cluster.gang import GangKey, Link, is_launcher, link_strictness, rank
from cluster.keys import ALLOCATION, GANG
from cluster.pod import Pod
from cluster.record import Allocation
from cluster.request import Family
from scorer.compare import IndexOrder, best_possible, index_order
from scorer.gangobject import Gang, GangPlan, name_of
from scorer.gangs import Owners, Unit, units_of
from scorer.member import Member, member_of
from scorer.outcome import Placement, Plan, Refusal
from scorer.plan import plan
from scorer.seat import Candidate, Seat, bandwidth_over
from scorer.seen import Seen, seen
from scorer.snapshot import Snapshot
from scorer.turn import take_turns
from topology.machine import mask_of


class State(StrEnum):
    """How things stand."""

    PLACED = "placed"
    """Everything has its GPUs."""
    FITS = "fits"
    """It could be placed now, and was not yet."""
    WAITS = "waits"
    ALONE = "not placed by Linkwise"
    """It asks for no GPU that Linkwise chooses, or nobody knows its GPUs."""
    ENDED = "finished"


@dataclass(frozen=True, slots=True)
class Sitting:
    """One pod's part."""

    name: str
    node: str | None
    gpus: tuple[int, ...]
    """Ascending; empty where it has none, or NVIDIA's plugin chooses."""
    state: str
    """In a word: bound, not bound yet, waits, finished."""


@dataclass(frozen=True, slots=True)
class Explained:
    """Everything there is to say."""

    kind: str
    """`pod` or `gang`."""
    namespace: str
    name: str
    state: State
    pods: tuple[Sitting, ...]
    """In rank order."""
    reason: str | None = None
    """Why it has no GPUs of Linkwise; None where it has."""
    plan: Plan | None = None
    """Where it is, or would be."""
    seen: Snapshot | None = None
    """The cluster on which it is judged: without it."""
    bandwidth: float | None = None
    """Modelled all-reduce bandwidth [GB/s]."""
    best_possible: float | None = None
    """The same members on the empty cluster [GB/s]."""
    index_order: IndexOrder | None = None
    """Nodes by name and lowest free indices."""
    changed: str | None = None
    """What would be decided now, where that differs from what was; None where it does not."""
    remedies: tuple[str, ...] = ()
    """What would help, each a sentence."""


@dataclass(frozen=True)
class Scene:
    """A cluster, as far as it is asked about."""

    snapshot: Snapshot
    pods: Mapping[tuple[str, str], Pod]
    """By namespace and name."""
    owners: Owners
    gangs: Mapping[tuple[str, str], Gang]
    """Gang objects, by namespace and name."""
    aged: Callable[[Unit], bool]
    """Whether a unit has waited so long that nobody may pass it any more."""

    @cached_property
    def seen(self) -> tuple[Seen, ...]:
        """The pods as the planner sees them."""
        return tuple(seen(pod) for pod in self.pods.values())

    @cached_property
    def decisions(self) -> tuple[tuple[Unit, Plan | Refusal, Snapshot], ...]:
        """What becomes of everything that waits, in turn, and the cluster that each one saw."""
        turns = take_turns(
            self.snapshot,
            units_of(self.seen, self.owners),
            aged=self.aged,
            standing={},
            avoided={},
        )
        found, snapshot = [], self.snapshot
        for decision in turns.decisions:
            found.append((decision.unit, decision.outcome, snapshot))
            if isinstance(decision.outcome, Plan):
                snapshot = decision.outcome.applied_to(snapshot)
        return tuple(found)


def explain_gang(scene: Scene, namespace: str, name: str) -> tuple[Explained, ...]:
    """Explain the gangs of a name: several where a job was submitted again; none where none is.

    Args:
        scene: The cluster.
        namespace: Theirs.
        name: As their pods give it, or of the Gang object.
    """
    keys = {
        scene.owners.key(one): None
        for one in scene.seen
        if one.gang is not None and one.namespace == namespace
    }
    return tuple(_of_key(scene, key) for key in keys if name in {key.name, name_of(key)})


def explain_pod(scene: Scene, namespace: str, name: str) -> Explained | None:
    """Explain a pod, with its gang where it has one; None where there is no such pod."""
    pod = scene.pods.get((namespace, name))
    if pod is None:
        return None
    one = seen(pod)
    if one.gang is not None:
        return _of_key(scene, scene.owners.key(one))
    for unit, outcome, before in scene.decisions:
        if not unit.is_gang and unit.waiting[0].uid == one.uid:
            return _waiting(scene, unit, outcome, before)
    return _single(scene, pod, one)


def _of_key(scene: Scene, key: GangKey) -> Explained:
    for unit, outcome, before in scene.decisions:
        if unit.key == key:
            return _waiting(scene, unit, outcome, before)
    found = [one for one in scene.seen if one.gang and scene.owners.key(one) == key]
    return _settled(scene, "gang", key, sorted(found, key=lambda one: _turn(scene, one)))


def _turn(scene: Scene, one: Seen) -> tuple[bool, int, str]:
    """Order as the planner does: a launcher that asks for GPUs comes before its workers."""
    pod = scene.pods[one.key]
    return not is_launcher(pod), rank(pod) or 0, one.name


def _waiting(scene: Scene, unit: Unit, outcome: Plan | Refusal, before: Snapshot) -> Explained:
    placed = outcome if isinstance(outcome, Plan) else None
    planned = {one.member.name: one for one in placed.placements} if placed else {}
    told = scene.gangs.get((unit.key.namespace, name_of(unit.key)))
    refusal = None if isinstance(outcome, Plan) else outcome.reason
    order = index_order(before, unit.members)
    return Explained(
        kind="gang" if unit.is_gang else "pod",
        namespace=unit.key.namespace,
        name=unit.key.name,
        state=State.WAITS if placed is None else State.FITS,
        pods=tuple(
            _sitting(one, planned.get(f"{one.namespace}/{one.name}"))
            for one in (*unit.settled, *unit.waiting)
        ),
        reason=refusal or (told.status.reason if told else None) or None,
        plan=placed,
        seen=before,
        bandwidth=placed.bandwidth if placed else None,
        best_possible=None if unit.blocked else best_possible(before, unit.members),
        index_order=order,
        remedies=tuple(remedies(before, unit)) if placed is None else (),
    )


def _single(scene: Scene, pod: Pod, one: Seen) -> Explained:
    """Explain a pod on its own that waits for nothing of ours."""
    key = GangKey(one.namespace, one.name, one.uid)
    claimant = one.claimant
    if claimant is None:
        ended = _sitting(one)
        return Explained("pod", *key[:2], State.ENDED, (ended,), "it is finished and holds no GPUs")
    if claimant.places and isinstance(claimant.record, Allocation):
        return _settled(scene, "pod", key, [one])
    reason = _why_alone(scene, one)
    member = member_of(pod, one.namespace)
    outcome: Plan | Refusal | None = None
    if claimant.family is not None and not claimant.node:
        outcome = plan(scene.snapshot, [member])
    if isinstance(outcome, Refusal):
        return Explained("pod", *key[:2], State.WAITS, (_sitting(one),), outcome.reason)
    return Explained("pod", *key[:2], State.ALONE, (_sitting(one),), reason, plan=outcome)


def _why_alone(scene: Scene, one: Seen) -> str:
    """Say why Linkwise has no part in where a pod is."""
    claimant = one.claimant
    if claimant is None or claimant.family is None:
        return "it asks for no GPU; kube-scheduler chooses its node"
    if claimant.family is Family.NVIDIA:
        return "kube-scheduler chooses its node by count, and NVIDIA's plugin its GPUs"
    if not claimant.node:
        return f"it has no scheduling gate {GANG}: Linkwise was not asked when it was created"
    ledger = scene.snapshot.ledger.nodes.get(claimant.node)
    doubt = ledger.unaccounted if ledger else None
    return doubt or f"it has GPUs of {claimant.node}, but no {ALLOCATION}"


def _settled(scene: Scene, kind: str, key: GangKey, found: Sequence[Seen]) -> Explained:
    """Explain what has its GPUs, by its records."""
    pods = tuple(map(_sitting, found))
    running = [
        (one, one.claimant.record)
        for one in found
        if one.claimant is not None and isinstance(one.claimant.record, Allocation)
    ]
    nodes = scene.snapshot.ledger.nodes
    left = next((one for one in found if one.claimant is not None), None)
    if not running and left is not None:
        return Explained(kind, *key[:2], State.WAITS, pods, _why_alone(scene, left))
    if not running:
        return Explained(kind, *key[:2], State.ENDED, pods, "it is finished and holds no GPUs")
    gang = f"{key.namespace}/{key.name}" if kind == "gang" else None
    members = [member_of(scene.pods[one.key], one.namespace, gang) for one, _ in running]
    placements = tuple(
        Placement(member, record.node, record.gpus)
        for member, (_, record) in zip(members, running, strict=True)
    )
    told = _told(scene, key, {record.plan for _, record in running})
    known = Explained(
        kind,
        *key[:2],
        State.PLACED,
        pods,
        bandwidth=told.bandwidth if told else None,
        best_possible=told.best_possible if told else None,
    )
    if not all(record.node in nodes for _, record in running):
        return replace(known, changed="a node of it is gone")
    return _judged(scene, known, members, placements, told)


def _judged(
    scene: Scene,
    known: Explained,
    members: Sequence[Member],
    placements: tuple[Placement, ...],
    told: GangPlan | None,
) -> Explained:
    """Add to what the records tell what the engine says of it now, on the cluster without it."""
    before = _without(scene.snapshot, placements)
    link = link_strictness(members[0].pod)[0] if known.kind == "gang" else Link.BEST
    again = plan(before, members, link=link)
    recorded = Plan(placements, bandwidth=_bandwidth(before, placements))
    same = isinstance(again, Plan) and _sets(again) == _sets(recorded)
    order = index_order(before, members)
    if told and told.index_order is not None:
        order = IndexOrder(order.gpus if order else {}, told.index_order)
    shown = replace(again, placements=placements) if same and isinstance(again, Plan) else recorded
    return replace(
        known,
        plan=shown,
        seen=before,
        bandwidth=known.bandwidth if told else shown.bandwidth,
        best_possible=known.best_possible if told else best_possible(before, members),
        index_order=order,
        changed=None if same else _instead(again),
    )


def _instead(again: Plan | Refusal) -> str:
    """Say what would be decided now in place of what was."""
    if isinstance(again, Refusal):
        return f"decided now, it would wait: {again.reason}"
    gpus = "; ".join(f"{node}: {' '.join(map(str, taken))}" for node, taken in again.gpus.items())
    speed = f" at {again.bandwidth:.1f} GB/s" if again.bandwidth is not None else ""
    return f"decided now, it would be {gpus}{speed}"


def _without(snapshot: Snapshot, placements: Iterable[Placement]) -> Snapshot:
    """Return the cluster as if these pods were not there."""
    ledger = snapshot.ledger
    for one in placements:
        ledger = ledger.release(one.member.pod.metadata.uid or one.member.name)
    return replace(snapshot, ledger=ledger)


def _sets(decided: Plan) -> dict[str, frozenset[int]]:
    return {node: frozenset(gpus) for node, gpus in decided.gpus.items()}


def _bandwidth(before: Snapshot, placements: Iterable[Placement]) -> float | None:
    """Return the modelled bandwidth over whole GPUs that are given; None for all else."""
    whole = [one for one in placements if one.member.gpus]
    nodes = {one.node: 0 for one in whole}
    for one in whole:
        nodes[one.node] |= mask_of(one.gpus)
    seats = [
        Seat(Candidate(before.ledger.nodes[node], before.tables[node], 1), 1, mask)
        for node, mask in nodes.items()
    ]
    return bandwidth_over(seats, before.nic_bandwidth) if seats else None


def _told(scene: Scene, key: GangKey, plans: set[str | None]) -> GangPlan | None:
    """Return the plan that stands in the Gang object, if it is the one that was carried out."""
    found = scene.gangs.get((key.namespace, name_of(key)))
    written = found.spec.plan if found else None
    return written if written and plans == {written.id} else None


def _sitting(one: Seen, planned: Placement | None = None) -> Sitting:
    claimant = one.claimant
    if planned is not None:
        return Sitting(one.name, planned.node, planned.gpus, "would go there")
    if claimant is None:
        return Sitting(one.name, None, (), "finished")
    record = claimant.record
    if not isinstance(record, Allocation):
        state = "bound" if claimant.node else "waits"
        return Sitting(one.name, claimant.node or None, (), state)
    gpus = tuple(sorted(share.i for share in record.gpus))
    return Sitting(one.name, record.node, gpus, "bound" if claimant.node else "not bound yet")
