"""What would happen to these pods, denied ones and those without GPUs among them. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cli.remedy import never_fits as never_placed
from cluster.gang import Link, link_strictness
from cluster.pod import Pod
from cluster.record import GPUShare
from scorer.seen import seen
from scorer.simulation import GangResult, Intended, settled_of
from scorer.simulation import simulate as simulate_pods
from scorer.snapshot import Snapshot
from scorer.whatif import BY_COUNT
from scorer.why import notes_on
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

    @property
    def is_placed(self) -> bool:
        """Whether a place is looked for: it is not denied, and asks for GPUs."""
        denied = self.outcome.verdict is Verdict.DENIED
        return not denied and self.outcome.request.family is not None

    @property
    def intended(self) -> Intended:
        """The pod as placement is asked about it."""
        declared = self.workload.members if self.workload else None
        return Intended(self.pod, self.namespace, self.owner, declared)


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
    unit: GangResult | None = None
    """With whom it was decided; None where no place was looked for."""


@dataclass(frozen=True, slots=True)
class Simulation:
    """Everything that happened, and the cluster before and after."""

    pods: tuple[PodResult, ...]
    """In the order in which they were given."""
    gangs: tuple[GangResult, ...]
    """In the order in which they were decided."""
    before: Snapshot
    after: Snapshot


def simulate(
    snapshot: Snapshot, applicants: Sequence[Applicant], pods: Iterable[Pod] = ()
) -> Simulation:
    """Place pods in turn; what is denied or asks for no GPU takes nothing.

    Args:
        snapshot: The cluster.
        applicants: The pods that are created.
        pods: The cluster's own: those that run or have completed count towards their gang's size.
    """
    placed = [one for one in applicants if one.is_placed]
    gangs, after = simulate_pods(
        snapshot, [one.intended for one in placed], settled_of(map(seen, pods))
    )
    results = {
        id(placed[place]): _result(placed[place], gang, index)
        for gang in gangs
        for index, place in enumerate(gang.places)
    }
    everybody = tuple(results.get(id(one)) or _elsewhere(one) for one in applicants)
    return Simulation(everybody, tuple(gangs), snapshot, after)


def never_fits(unit: GangResult) -> bool:
    """Say whether a gang, or a pod on its own, would have no place if nothing else ran.

    Cost: a plan, of one that is not placed.
    """
    if unit.plan is not None:
        return False
    link = link_strictness(unit.members[0].pod)[0] if unit.is_gang else Link.BEST
    return never_placed(unit.seen, unit.members, link)


def notes_of(unit: GangResult) -> list[str]:
    """Return what the plan of a unit could not know, or leaves to others."""
    if unit.plan is None:
        return []
    notes = notes_on(unit.seen, unit.plan)
    return notes if unit.members[0].request.places else [*notes, BY_COUNT]


def _result(applicant: Applicant, gang: GangResult, index: int) -> PodResult:
    placement = gang.plan.placements[index] if gang.plan else None
    name = gang.name if gang.is_gang else None
    node = placement.node if placement else None
    shares = placement.shares if placement else ()
    return PodResult(applicant, name, node, shares, gang.reason, gang)


def _elsewhere(applicant: Applicant) -> PodResult:
    """Say why a pod that was not placed was not even tried."""
    reason = KUBE_SCHEDULER
    if applicant.outcome.verdict is Verdict.DENIED:
        errors = [finding for finding in applicant.outcome.findings if finding.severity == "error"]
        reason = "denied: " + "; ".join(f"{one.code} {one.message}" for one in errors)
    return PodResult(applicant, None, None, (), reason)
