"""The plan of a whole gang, although only some of its members are placed now.

A replacement, or a member that was added, is planned alone; the Gang shows the plan of all. Pure.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from msgspec import structs

from linkwise.cluster.account.node_ledger import NodeLedger
from linkwise.planning.gang.crd_plan import GangPlan, NodeGPUs, PlannedPod, held_nodes
from linkwise.planning.gang.plan_record import plan_from_records, tenths
from linkwise.planning.gang.unit import Unit
from linkwise.planning.placement.assignment.node_assignment import NodeAssignment
from linkwise.planning.placement.bandwidth import SETS_UNKNOWN, UNDEFINED, Bandwidth, bandwidth_over
from linkwise.planning.placement.placements import counted_set
from linkwise.planning.placement.pods.member import Member
from linkwise.planning.placement.state.snapshot import Snapshot
from linkwise.topology.machine import mask_of
from linkwise.topology.table import Table


def whole_plan(plan: GangPlan, unit: Unit, snapshot: Snapshot, before: GangPlan | None) -> GangPlan:
    """Return a plan with the members that have their GPUs already, and the bandwidth of all.

    Args:
        plan: Of the members that are placed now.
        unit: These members, and the others.
        snapshot: The cluster.
        before: The last plan of the gang, which has the order of ranks; None: there is none.

    Cost: linear in the members.
    """
    siblings = plan_from_records(plan.id, unit.settled).members
    if has_others := _has_others(unit):
        plan = structs.replace(plan, bandwidth=None, bandwidth_note=SETS_UNKNOWN)
    if not siblings:
        return plan
    places = {member.pod: place for place, member in enumerate(before.members if before else ())}

    def order(member: PlannedPod) -> tuple[int, str, int]:
        stem = member.pod.rstrip("0123456789")
        # A late launcher has the place of its Job.
        place = places.get(member.pod, places.get(member.pod.rpartition("-")[0], len(places)))
        return place, stem, int(member.pod[len(stem) :] or -1)

    members = tuple(sorted((*siblings, *plan.members), key=order))
    nodes = held_nodes((member.node, member.gpus) for member in members)
    nic = snapshot.preferences.nic_bandwidth
    ledgers, bandwidth = snapshot.ledger.nodes, UNDEFINED
    if all(member.gpus for member in unit.members) and not has_others:
        bandwidth = gang_bandwidth(nodes, ledgers.get, snapshot.tables.get, nic)
    if bandwidth.value is None:
        sets_unknown = has_others or any(node.count for node in nodes)
        bandwidth = Bandwidth(sets_unknown=sets_unknown)
    return structs.replace(
        plan,
        members=members,
        bandwidth=tenths(bandwidth.value),
        bandwidth_note=bandwidth.note,
        domain=_domain([ledgers.get(node.node) for node in nodes], snapshot.preferences.domains),
    )


def gang_bandwidth(
    nodes: Sequence[NodeGPUs],
    ledger: Callable[[str], NodeLedger | None],
    table: Callable[[str], Table | None],
    nic_bandwidth: float | None,
) -> Bandwidth:
    """Return the modelled bandwidth over whole GPUs; undefined where it is not known.

    Args:
        nodes: The GPUs on each node.
        ledger: Returns the ledger of a node.
        table: Returns the table of its machine.
        nic_bandwidth: As in `Snapshot`.
    """
    assignments: list[NodeAssignment] = []
    for node in nodes:
        here, links = ledger(node.node), table(node.node)
        if here is None or links is None:
            return UNDEFINED
        mask = counted_set(here, node.count) if node.count else mask_of(node.indices)
        if mask is None:
            return UNDEFINED
        assignments.append(NodeAssignment(here, links, mask))
    return bandwidth_over(assignments, nic_bandwidth)


def all_members(unit: Unit) -> tuple[Member, ...] | None:
    """Return all members of a gang as the input of placement, to compare its plan with others.

    Of a member that has its GPUs only their number is known, so it counts as one that waits. None:
    some ask for another number of GPUs, or Linkwise did not choose those of some.
    """
    first = unit.members[0]
    if _has_others(unit):
        return None
    siblings = plan_from_records("", unit.settled).members
    if not siblings:
        return unit.members
    counts = {len(sibling.gpus) for sibling in siblings}
    if counts | {member.gpus for member in unit.members} != {first.gpus}:
        return None
    return (*unit.members, *(_as(first, sibling) for sibling in siblings))


def without_siblings(snapshot: Snapshot, unit: Unit) -> Snapshot:
    """Return the cluster without the members of a gang that have their GPUs."""
    nodes = dict(snapshot.ledger.nodes)
    for pod in unit.settled:
        if pod.usage and (ledger := nodes.get(pod.usage.target)):
            nodes[ledger.node.name] = ledger.release(pod.uid)
    return replace(snapshot, ledger=replace(snapshot.ledger, nodes=nodes))


def _has_others(unit: Unit) -> bool:
    """Return whether members have GPUs that Linkwise did not choose."""
    return any(pod.usage and not pod.allocation for pod in unit.settled)


def _as(member: Member, sibling: PlannedPod) -> Member:
    pod = member.pod
    metadata = structs.replace(pod.metadata, name=sibling.pod, uid=sibling.uid)
    return replace(
        member,
        pod=structs.replace(pod, metadata=metadata),
        name=f"{pod.metadata.namespace}/{sibling.pod}",
    )


def _domain(nodes: Sequence[NodeLedger | None], labels: Iterable[str]) -> str | None:
    """Return `label=value` of the nearest network domain that several nodes share."""
    if len(nodes) < 2:
        return None
    for label in labels:
        values = {node.node.labels.get(label) if node else None for node in nodes}
        if len(values) == 1 and (value := values.pop()) is not None:
            return f"{label}={value}"
    return None
