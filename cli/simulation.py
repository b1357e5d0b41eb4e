"""What would happen to these pods, one unit after another, on this cluster. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from cluster.gang import Link, gang_mark, is_launcher, is_member, link_strictness, rank
from cluster.pod import Pod
from cluster.record import GPUShare
from cluster.request import Request, read_request
from scorer.compare import IndexOrder, best_possible, index_order
from scorer.member import Member, member_of
from scorer.outcome import Plan, Refusal
from scorer.plan import plan
from scorer.snapshot import Snapshot
from webhook.outcome import Outcome, Verdict
from webhook.workload import Workload

KUBE_SCHEDULER = "asks for no GPU that Linkwise chooses; kube-scheduler picks its node"


@dataclass(frozen=True, slots=True)
class Applicant:
    """A pod that is created, and what admission made of it."""

    pod: Pod
    """As admitted: patched where it was allowed."""
    namespace: str
    outcome: Outcome
    workload: Workload | None = None
    """What makes the pod, where it tells more than the pod."""
    owner: str = ""
    """What tells its gang from one of the same name: the uid of its topmost owner."""


@dataclass(frozen=True, slots=True)
class PodResult:
    """Where one pod goes, or why it goes nowhere."""

    applicant: Applicant
    gang: str | None
    node: str | None
    shares: tuple[GPUShare, ...]
    """What it gets of each GPU; empty where somebody else chooses them."""
    reason: str | None
    """Never empty where there is no node."""


@dataclass(frozen=True, slots=True)
class GangResult:
    """Where a gang, or a pod with several GPUs, goes as one unit."""

    name: str
    namespace: str
    members: tuple[Member, ...]
    """GPU members that are present, in rank order."""
    plan: Plan | None
    reason: str | None
    """Why it is not placed; None where it is."""
    best_possible: float | None
    """The same members on the empty cluster [GB/s]."""
    index_order: IndexOrder | None
    """Nodes by name and lowest free indices."""
    is_gang: bool
    """False for a single pod."""
    seen: Snapshot
    """The cluster when this was decided."""


@dataclass(frozen=True, slots=True)
class Simulation:
    """Everything that happened, and the cluster before and after."""

    pods: tuple[PodResult, ...]
    """In the order in which they were given."""
    gangs: tuple[GangResult, ...]
    """In the order in which they were decided."""
    before: Snapshot
    after: Snapshot


@dataclass(frozen=True, slots=True)
class _Unit:
    """Pods that are decided at once: a gang, or a single pod."""

    gang: str | None
    applicants: tuple[Applicant, ...]
    needed: int
    """How many members must be present."""

    @property
    def key(self) -> tuple[str, str, str] | None:
        """What a pod of the cluster shares with its gang; None for a single pod."""
        first = self.applicants[0]
        return _gang_key(first.pod, first.namespace) if self.gang else None


def simulate(
    snapshot: Snapshot, applicants: Sequence[Applicant], pods: Iterable[Pod] = ()
) -> Simulation:
    """Place pods in the order of priority, then of creation, then as given; a gang at its first.

    Each unit sees what the ones before it took. What is denied or asks for no GPU takes nothing.

    Args:
        snapshot: The cluster.
        applicants: The pods that are created.
        pods: The cluster's own: those that run or have completed count towards their gang's size.
    """
    present = Counter(filter(None, map(_settled_gang, pods)))
    before, empty = snapshot, snapshot.emptied()
    results: dict[int, PodResult] = {}
    gangs: list[GangResult] = []
    for unit in _ordered(applicants):
        result, planned = _decide(snapshot, unit, empty, present[unit.key] if unit.key else 0)
        gangs.append(result)
        if planned is not None:
            snapshot = planned.applied_to(snapshot)
        results |= dict(_results(unit, result))
    for applicant in applicants:
        if id(applicant) not in results:
            results[id(applicant)] = PodResult(applicant, None, None, (), _elsewhere(applicant))
    placed = tuple(results[id(applicant)] for applicant in applicants)
    return Simulation(placed, tuple(gangs), before, snapshot)


def _decide(
    snapshot: Snapshot, unit: _Unit, empty: Snapshot, settled: int
) -> tuple[GangResult, Plan | None]:
    members = tuple(
        member_of(a.pod, a.namespace, f"{a.namespace}/{unit.gang}" if unit.gang else None)
        for a in unit.applicants
    )
    first = unit.applicants[0]
    planned: Plan | Refusal
    if len(members) + settled < unit.needed:
        planned = Refusal(f"{len(members) + settled} of {unit.needed} members")
    else:
        link = link_strictness(first.pod)[0] if unit.gang else Link.BEST
        planned = plan(snapshot, members, link=link)
    placed = planned if isinstance(planned, Plan) else None
    result = GangResult(
        name=unit.gang or first.pod.metadata.name,
        namespace=first.namespace,
        members=members,
        plan=placed,
        reason=planned.reason if isinstance(planned, Refusal) else None,
        best_possible=best_possible(empty, members),
        index_order=index_order(snapshot, members),
        is_gang=unit.gang is not None,
        seen=snapshot,
    )
    return result, placed


def _results(unit: _Unit, result: GangResult) -> Iterator[tuple[int, PodResult]]:
    placements = result.plan.placements if result.plan else [None] * len(unit.applicants)
    for applicant, placement in zip(unit.applicants, placements, strict=True):
        node = placement.node if placement else None
        shares = placement.shares if placement else ()
        yield id(applicant), PodResult(applicant, unit.gang, node, shares, result.reason)


def _elsewhere(applicant: Applicant) -> str:
    """Say why a pod that was not placed was not even tried."""
    if applicant.outcome.verdict is not Verdict.DENIED:
        return KUBE_SCHEDULER
    errors = [finding for finding in applicant.outcome.findings if finding.severity == "error"]
    return "denied: " + "; ".join(f"{finding.code} {finding.message}" for finding in errors)


def _ordered(applicants: Iterable[Applicant]) -> list[_Unit]:
    """Return the units to decide, first come first served within equal priority."""
    groups: dict[object, list[tuple[int, Applicant]]] = {}
    for position, applicant in enumerate(applicants):
        request = applicant.outcome.request
        if applicant.outcome.verdict is Verdict.DENIED or request.family is None:
            continue
        groups.setdefault(_key(applicant, request, position), []).append((position, applicant))
    return [_unit([a for _, a in group]) for group in sorted(groups.values(), key=_turn)]


def _settled_gang(pod: Pod) -> tuple[str, str, str] | None:
    """Return the gang of a pod that was placed and has not failed; None for all others."""
    placed = pod.spec.node_name and pod.status.phase != "Failed"
    if not placed or not is_member(pod, read_request(pod)[0], gang_mark(pod)[0]):
        return None
    return _gang_key(pod, pod.metadata.namespace or "default")


def _gang_key(pod: Pod, namespace: str) -> tuple[str, str, str] | None:
    """Return what tells a gang from others; its owner, since a job submitted again is another."""
    mark = gang_mark(pod)[0]
    owners = [one.uid for one in pod.metadata.owner_references or () if one.controller]
    return (namespace, mark.name, "".join(owners)) if mark else None


def _key(applicant: Applicant, request: Request, position: int) -> object:
    mark = gang_mark(applicant.pod)[0]
    if mark is None or not is_member(applicant.pod, request, mark):
        return position
    return (applicant.namespace, mark.name, applicant.owner)


def _turn(group: list[tuple[int, Applicant]]) -> tuple[int, str, int]:
    position, first = group[0]
    metadata = first.pod.metadata
    # A pod that is not created yet comes after every pod that is.
    created = metadata.creation_timestamp or "~"
    return -(first.pod.spec.priority or 0), created, position


def _unit(applicants: list[Applicant]) -> _Unit:
    first = applicants[0]
    mark = gang_mark(first.pod)[0]
    if mark is None or not is_member(first.pod, first.outcome.request, mark):
        return _Unit(None, tuple(applicants), 1)
    declared = first.workload.members if first.workload else None
    stated = [n for n in (mark.min_available, mark.total, declared) if n is not None]
    needed = stated[0] if stated else len(applicants)
    # A minimum above what the owner makes is cut to it: mpi-operator counts the launcher too.
    needed = min(needed, declared) if declared is not None else needed
    ranked = sorted(applicants, key=lambda a: (not is_launcher(a.pod), rank(a.pod) or 0))
    return _Unit(mark.name, tuple(ranked), needed)
