"""What would happen to these pods, denied ones and those without GPUs among them. Pure."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from cluster.gang import gang_mark
from cluster.gang_owner import Workload
from cluster.ledger import Ledger
from cluster.other_systems import gpus_of_others
from cluster.pod import Pod
from cluster.record import GPUShare
from scorer.gang.pod_info import pod_info
from scorer.gang.unit import link_of
from scorer.placement.baselines import IndexOrder, never_fits
from scorer.placement.explain import notes_on
from scorer.placement.member import Member
from scorer.placement.result import Plan
from scorer.placement.snapshot import Snapshot
from scorer.whatif.fit import BY_COUNT
from scorer.whatif.simulate import GangResult, Intended, settled_of, simulate_each
from webhook.outcome import Outcome, Verdict

KUBE_SCHEDULER = "asks for no GPU that Linkwise chooses; kube-scheduler picks its node"


@dataclass(frozen=True, slots=True)
class AdmittedPod:
    """A pod that is created, and what admission made of it."""

    pod: Pod
    """As admitted: patched where it was allowed."""
    namespace: str
    outcome: Outcome
    workload: Workload | None = None
    """What makes the pod, where it tells more than the pod."""
    owner: str = ""
    """What tells its gang from one of the same name: the uid of its topmost owner."""

    @property
    def is_placed(self) -> bool:
        """Whether a place is looked for: it is not denied, and asks for GPUs of known kinds."""
        denied = self.outcome.verdict is Verdict.DENIED
        return not denied and self.outcome.request.family is not None and self.others is None

    @property
    def others(self) -> str | None:
        """What it asks others for, who give out GPUs beside Linkwise; None: nothing."""
        return gpus_of_others(self.pod.spec, self.outcome.request.family)

    @property
    def intended(self) -> Intended:
        """The pod as placement is asked about it."""
        declared = self.workload.members if self.workload else None
        return Intended(self.pod, self.namespace, self.owner, declared)


@dataclass(frozen=True, slots=True)
class UnitResult:
    """What became of a gang, or of a pod on its own: no more than what is shown of it."""

    name: str
    namespace: str
    places: tuple[int, ...]
    """Of its pods, among those that were placed; in rank order."""
    members: tuple[Member, ...]
    plan: Plan | None
    reason: str | None
    """Why it is not placed; None where it is."""
    is_gang: bool
    seen: Snapshot
    """The nodes of its plan as they were then; of a unit without a plan, the whole cluster."""
    best_possible: float | None
    """The same members on the empty cluster [GB/s]."""
    index_order: IndexOrder | None
    """Nodes by name and lowest free indices; None where no bandwidth is compared with it."""
    never: bool
    """It would have no place if nothing else ran."""


@dataclass(frozen=True, slots=True)
class PodResult:
    """Where one pod goes, or why it goes nowhere."""

    applicant: AdmittedPod
    gang: str | None
    node: str | None
    shares: tuple[GPUShare, ...]
    """What it gets of each GPU; empty where somebody else chooses them."""
    reason: str | None
    """Never empty where there is no node."""
    unit: UnitResult | None = None
    """With whom it was decided; None where no place was looked for."""


@dataclass(frozen=True, slots=True)
class Simulation:
    """Everything that happened, and the cluster before and after."""

    pods: tuple[PodResult, ...]
    """In the order in which they were given."""
    gangs: tuple[UnitResult, ...]
    """In the order in which they were decided."""
    before: Snapshot
    after: Snapshot


Step: TypeAlias = tuple[GangResult, Snapshot]
"""What became of a unit, and the cluster after it."""


def _unfollowed(steps: Iterable[Step], _: int) -> Iterable[Step]:
    return steps


def simulate(
    snapshot: Snapshot,
    applicants: Sequence[AdmittedPod],
    pods: Iterable[Pod] = (),
    follow: Callable[[Iterable[Step], int], Iterable[Step]] = _unfollowed,
) -> Simulation:
    """Place pods in turn; what is denied or asks for no GPU takes nothing.

    Args:
        snapshot: The cluster.
        applicants: The pods that are created.
        pods: The cluster's own: those that run or have completed count towards their gang's size.
        follow: Yields every step when it is done; of so many pods.
    """
    placed = [one for one in applicants if one.is_placed]
    intended = [one.intended for one in placed]
    shown = _Shown(snapshot)
    units: list[UnitResult] = []
    after = snapshot
    members = (pod_info(pod) for pod in pods if gang_mark(pod)[0] is not None)
    steps = simulate_each(snapshot, intended, settled_of(members))
    for result, then in follow(steps, len(intended)):
        units.append(shown.of(result))
        after = then
    results = {
        id(placed[place]): _result(placed[place], unit, index)
        for unit in units
        for index, place in enumerate(unit.places)
    }
    everybody = tuple(results.get(id(one)) or _elsewhere(one) for one in applicants)
    return Simulation(everybody, tuple(units), snapshot, after)


class _Shown:
    """What is shown of units: measured at once, so that no cluster of the past is kept."""

    def __init__(self, cluster: Snapshot) -> None:
        self._cluster = cluster
        self._never: dict[Hashable, bool] = {}
        """By what tells a unit from others: pods of one workload are asked about once."""

    def of(self, result: GangResult) -> UnitResult:
        """Return what is shown of a unit."""
        compared = result.is_gang or (result.plan and result.plan.bandwidth is not None)
        return UnitResult(
            result.name,
            result.namespace,
            result.places,
            result.members,
            result.plan,
            result.reason,
            result.is_gang,
            _only(result.seen, result.plan.gpus) if result.plan else self._cluster,
            result.best_possible,
            result.index_order if compared else None,
            result.plan is None and self._is_never(result),
        )

    def _is_never(self, result: GangResult) -> bool:
        link = link_of(result.members, is_gang=result.is_gang)
        asked = link, tuple(member.signature for member in result.members)
        if asked not in self._never:
            self._never[asked] = never_fits(self._cluster, result.members, link)
        return self._never[asked]


def _only(snapshot: Snapshot, names: Iterable[str]) -> Snapshot:
    """Return the same moment with these nodes alone."""
    nodes = {name: snapshot.ledger.nodes[name] for name in names}
    return replace(snapshot, ledger=Ledger(nodes))


def notes_of(unit: UnitResult) -> list[str]:
    """Return what the plan of a unit could not know, or leaves to others."""
    if unit.plan is None:
        return []
    notes = notes_on(unit.seen, unit.plan)
    return notes if unit.members[0].request.places else [*notes, BY_COUNT]


def _result(applicant: AdmittedPod, gang: UnitResult, index: int) -> PodResult:
    placement = gang.plan.placements[index] if gang.plan else None
    name = gang.name if gang.is_gang else None
    node = placement.node if placement else None
    shares = placement.shares if placement else ()
    return PodResult(applicant, name, node, shares, gang.reason, gang)


def _elsewhere(applicant: AdmittedPod) -> PodResult:
    """Say why a pod that was not placed was not even tried."""
    others = applicant.others
    reason = f"asks for {others}: Linkwise does not place it" if others else KUBE_SCHEDULER
    if applicant.outcome.verdict is Verdict.DENIED:
        errors = [finding for finding in applicant.outcome.findings if finding.severity == "error"]
        reason = "denied: " + "; ".join(f"{one.code} {one.message}" for one in errors)
    return PodResult(applicant, None, None, (), reason)
