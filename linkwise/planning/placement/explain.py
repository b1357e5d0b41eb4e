"""Explain a plan: its nodes, the GPUs on each, and what it leaves to other components."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from linkwise.cluster.keys import NVIDIA_GPU, POD_CLAIM
from linkwise.cluster.nodes.node import MachineSource, Node
from linkwise.cluster.requests.request import Family
from linkwise.planning.placement.bandwidth import Bandwidth
from linkwise.planning.placement.pods.member import Member
from linkwise.planning.placement.result import Placement, Plan
from linkwise.planning.placement.state.selected_nodes import selected_by
from linkwise.planning.placement.state.snapshot import Snapshot
from linkwise.topology.choice import ChoiceRequest
from linkwise.topology.explain import Explanation, explain
from linkwise.topology.machine import mask_of

MAX_EXPLAINED = 16
"""Nodes of a plan whose GPUs are explained: it takes long to rank all sets of a node."""

_ABSENT_SHOWN = 3
_INFERRED = (
    MachineSource.FEATURE_DISCOVERY,
    MachineSource.CATALOGUE,
    MachineSource.RESOURCE_SLICES,
)
"""Sources of links that nobody has read from the node, nor written down."""


@dataclass(frozen=True, slots=True)
class PlanExplanation:
    """The explanation of a plan."""

    nodes: str
    """Why these nodes, one sentence."""
    gpus: dict[str, Explanation]
    """Why these GPUs, by node; for whole GPUs that Linkwise chooses."""
    notes: tuple[str, ...]
    """Facts that are unknown to the plan, or not decided by it."""


def explain_plan(snapshot: Snapshot, plan: Plan) -> PlanExplanation:
    """Explain a plan that was made on this snapshot.

    Cost: milliseconds for each kind of node.
    """
    return PlanExplanation(why_these(plan), _gpus(snapshot, plan), tuple(notes_on(snapshot, plan)))


def why_these(plan: Plan) -> str:
    """Return in one sentence why a plan has these nodes."""
    feasible = f"{plan.nodes_considered} node{'s' * (plan.nodes_considered != 1)}"
    members = len(plan.placements)
    used = len(plan.gpus)
    if plan.one_by_one:
        return f"one after another, each of the {members} on the node that was best for it then"
    if used == 1:
        node = next(iter(plan.gpus))
        together = "it" if members == 1 else f"all {members}"
        if plan.nodes_considered == 1:
            return f"only {node} takes {together} now"
        return f"of the {feasible} that take {together} now, {node} is the best"
    near = f", all with {plan.domain}" if plan.domain else ""
    proven = "the best such set" if plan.exact else "found step by step, perhaps not the best"
    return f"no single node takes all {members}; {used} nodes is the fewest{near}; {proven}"


def _gpus(snapshot: Snapshot, plan: Plan) -> dict[str, Explanation]:
    found: dict[str, Explanation] = {}
    if plan.placements[0].member.request.family is not Family.WHOLE:
        return found
    needs = {placement.member.needs for placement in plan.placements}
    snapshot = selected_by(snapshot, needs.pop()) if len(needs) == 1 else snapshot
    for node, gpus in list(plan.gpus.items())[:MAX_EXPLAINED]:
        held = snapshot.ledger.nodes[node]
        if not gpus or not held.node.machine_known:
            continue
        several = len(plan.gpus) > 1
        request = ChoiceRequest(
            held.free_mask, len(gpus), mode=snapshot.preferences.mode, multi_node=several
        )
        explanation = explain(snapshot.tables[node], request)
        chosen = explanation.chosen
        if chosen is not None and mask_of(chosen.gpus) == mask_of(gpus):
            found[node] = explanation
    return found


def notes_on(snapshot: Snapshot, plan: Plan) -> list[str]:
    """Return the facts that are unknown to a plan on this snapshot, or not decided by it."""
    nodes = [snapshot.ledger.nodes[name].node for name in plan.gpus]
    unknown = [n.name for n in nodes if not n.machine_known and n.cards and not n.parts]
    notes = list(_parts(plan, nodes))
    if unknown:
        notes.append(f"the GPU links of {_few(unknown)} are unknown: all GPUs count as equal")
    inferred = ((s, [n.name for n in nodes if n.machine_source is s]) for s in _INFERRED)
    notes += [f"the GPU links of {_few(names)} are {s.words}" for s, names in inferred if names]
    policies: dict[str, list[str]] = {}
    for node in nodes:
        if note := node.kubelet.numa_note:
            policies.setdefault(note, []).append(node.name)
    notes += [f"of {_few(names)}: {note}" for note, names in policies.items()]
    if plan.bandwidth.sets_unknown:
        where = _few(list(plan.counts))
        notes.append(f"the bandwidth is not known: NVIDIA's plugin chooses the GPUs of {where}")
    notes += _bandwidth_notes(plan.bandwidth)
    delegated = {c for p in plan.placements for c in delegated_constraints(p.member)}
    delegated |= {name for p in plan.placements for name in _claimed_resources(snapshot, p)}
    if delegated:
        notes.append(f"left to kube-scheduler: {', '.join(sorted(delegated))}")
    notes += _preferences(plan)
    return notes


def _parts(plan: Plan, nodes: Iterable[Node]) -> Iterator[str]:
    """Yield what pods get where a plugin offers parts of GPUs under the name of whole ones."""
    for node in nodes:
        if (parts := node.parts) is None:
            continue
        most = max(len(p.gpus) for p in plan.placements if p.node == node.name)
        gets = "no whole GPU"
        if most > 1:
            gets = f"and {'they are' if parts.cards == 1 else 'all may be'} parts of one GPU"
        yield (
            f"the {parts.count} {NVIDIA_GPU} of {node.name} are {parts.noun(2)} of "
            f"{parts.of_cards}: a pod gets {most} {parts.noun(most)}, {gets}"
        )


def _preferences(plan: Plan) -> Iterator[str]:
    """Yield what is preferred by rules about other pods, and does not count, or counts last."""
    rules = {placement.member.rules for placement in plan.placements}
    uncounted = {words for each in rules for words in each.uncounted}
    spread = "topology spread that is preferred (ScheduleAnyway)"
    if any(each.preferred for each in rules):
        if len(plan.placements) == 1:
            yield f"after the bandwidth: {spread}"
        else:
            uncounted.add(spread)
    if uncounted:
        yield f"not counted: {', '.join(sorted(uncounted))}"


def _claimed_resources(snapshot: Snapshot, placement: Placement) -> Iterator[str]:
    """Yield the resources of a pod for which kube-scheduler makes a claim on its node."""
    offered = snapshot.ledger.nodes[placement.node].node.resources
    for name, _ in placement.member.demand.others:
        if name in snapshot.class_resources and not offered.get(name):
            yield name


def _bandwidth_notes(bandwidth: Bandwidth) -> Iterator[str]:
    if bandwidth.slowest:
        yield f"the slowest link is {bandwidth.slowest.text}"
    if bandwidth.nic_unknown:
        yield "the bandwidth of the nodes' NICs is unknown, so it is not counted"


def _few(names: list[str]) -> str:
    return ", ".join(names[:3]) + (" and others" if len(names) > 3 else "")


def delegated_constraints(member: Member) -> tuple[str, ...]:
    """Name the constraints of a pod that only kube-scheduler checks.

    Volumes are among them where the objects about them may not be read, and devices of other
    drivers where its claims have none yet.
    """
    claims = (one.name for one in member.pod.spec.resource_claims or ())
    brought = member.request.user_claims
    own = {POD_CLAIM, *(brought.references if brought else ())}
    others = [name for name in claims if name not in own]
    left = ("devices of other drivers",) if len(others) > len(member.claim_places) else ()
    volumes = member.pod.spec.volumes or ()
    has_claim = any(volume.persistent_volume_claim or volume.ephemeral for volume in volumes)
    is_left = has_claim and member.volumes is None
    absent = member.volumes.absent[:_ABSENT_SHOWN] if member.volumes else ()
    missing = (f"PersistentVolumeClaim {name}, which does not exist yet" for name in absent)
    return (*member.rules.delegated, *left, *(("volumes",) if is_left else ()), *missing)
