"""Simulates the creation of admitted pods, with the denied ones and those without GPUs. Pure."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeAlias

from linkwise.admission.decide.outcome import Outcome, Verdict
from linkwise.cluster.account.ledger import Ledger
from linkwise.cluster.allocations.gpus import NO_GPUS, GPUs
from linkwise.cluster.gang import gang_mark
from linkwise.cluster.keys import DEFAULT_SCHEDULER
from linkwise.cluster.objects.pod import Pod
from linkwise.cluster.requests.other_systems import gpus_of_others
from linkwise.cluster.whatif_api import Preempted
from linkwise.planning.gang.pod_info import pod_info
from linkwise.planning.gang.victim_choice import RunningUnits
from linkwise.planning.placement.bandwidth import Bandwidth
from linkwise.planning.placement.baselines import IndexOrder, never_fits
from linkwise.planning.placement.explain import notes_on
from linkwise.planning.placement.state.snapshot import Snapshot
from linkwise.planning.whatif.fit import BY_COUNT
from linkwise.planning.whatif.preemption import Preemptions
from linkwise.planning.whatif.simulate import (
    Intended,
    SimulatedUnit,
    UnitPlacement,
    settled_members,
    simulate_each,
)
from linkwise.workloads.gang_owner import GangOwner


class PodState(StrEnum):
    """The result for a pod, in the words of a summary."""

    PLACED = "placed"
    WAITING = "waiting"
    NEVER = "never placed"
    """It would not fit if nothing else ran."""
    DENIED = "denied"
    OTHERS = "with GPUs that others give out"
    WITHOUT_GPUS = "without GPUs"


@dataclass(frozen=True, slots=True)
class AdmittedPod:
    """A pod that is created, with the result of its admission."""

    pod: Pod
    """With the patch of admission; unchanged where it was denied."""
    namespace: str
    outcome: Outcome
    workload: GangOwner | None = None
    """The owner that creates the pod, where it declares more than the pod."""
    owner: str = ""
    """The uid of its topmost owner: distinguishes gangs of one name."""

    @property
    def needs_placement(self) -> bool:
        """It is not denied, and asks for GPUs of known kinds."""
        denied = self.outcome.verdict is Verdict.DENIED
        return not denied and self.outcome.request.family is not None and self.others is None

    @property
    def others(self) -> str | None:
        """The resources of other systems that give out GPUs; None: it asks for none."""
        family = self.outcome.request.family
        return gpus_of_others(self.pod.spec, family, self.pod.annotations)

    @property
    def intended(self) -> Intended:
        """The pod for the scorer's simulation."""
        declared = self.workload.members if self.workload else None
        sufficient = self.workload.sufficient if self.workload else None
        return Intended(self.pod, self.namespace, self.owner, declared, sufficient)


@dataclass(frozen=True)
class UnitResult(UnitPlacement):
    """The placement of a unit with its values for reports.

    `seen` has only the nodes of its plan; for a unit without a plan it is the whole cluster.
    """

    best_possible: Bandwidth
    """The same members on the empty cluster."""
    index_order: IndexOrder | None
    """Nodes by name and lowest free indices; None where bandwidth is not compared with it."""
    never: bool
    """It would not fit if nothing else ran."""
    preempts: tuple[Preempted, ...] = ()
    """The units that would be evicted for it."""

    @property
    def notes(self) -> list[str]:
        """Facts that the plan could not know, and decisions left to others."""
        if self.plan is None:
            return []
        notes = notes_on(self.seen, self.plan)
        return notes if self.members[0].request.places else [*notes, BY_COUNT]


@dataclass(frozen=True, slots=True)
class PodResult:
    """Place of one pod, or the reason why it has none."""

    admitted: AdmittedPod
    gang: str | None
    node: str | None
    gpus: GPUs
    """Its part of each GPU; empty where another system chooses them."""
    reason: str | None
    """Never empty where there is no node."""
    unit: UnitResult | None = None
    """The unit that it was placed with; None where it needed no placement."""

    @property
    def name(self) -> str:
        """The pod's name."""
        return self.admitted.pod.metadata.name

    @property
    def state(self) -> PodState:
        """The result in a word."""
        if self.admitted.outcome.verdict is Verdict.DENIED:
            return PodState.DENIED
        if not self.admitted.needs_placement:
            return PodState.OTHERS if self.admitted.others else PodState.WITHOUT_GPUS
        if self.node is not None:
            return PodState.PLACED
        return PodState.NEVER if self.unit and self.unit.never else PodState.WAITING


@dataclass(frozen=True, slots=True)
class Simulation:
    """All results, and the cluster before and after."""

    pods: tuple[PodResult, ...]
    """In the order in which they were given."""
    units: tuple[UnitResult, ...]
    """In the order in which they were decided."""
    before: Snapshot
    after: Snapshot

    def pods_in(self, state: PodState) -> list[PodResult]:
        """Return the pods in a state."""
        return [pod for pod in self.pods if pod.state is state]


def unplaced_by_scheduler(pods: Iterable[PodResult]) -> dict[str, list[PodResult]]:
    """Return pods without GPUs grouped by the component that picks their nodes."""
    groups: dict[str, list[PodResult]] = {}
    for pod in pods:
        groups.setdefault(_scheduler_of(pod.admitted.pod), []).append(pod)
    return groups


def _scheduler_of(pod: Pod) -> str:
    """Return the component that picks the node of a pod that Linkwise does not place."""
    named = pod.spec.scheduler_name
    return f"scheduler {named}" if named not in {"", DEFAULT_SCHEDULER} else "kube-scheduler"


def by_reason(pods: Iterable[PodResult]) -> dict[str, list[PodResult]]:
    """Return pods grouped by their reasons."""
    groups: dict[str, list[PodResult]] = {}
    for pod in pods:
        groups.setdefault(pod.reason or "", []).append(pod)
    return groups


SimulationStep: TypeAlias = tuple[SimulatedUnit, Snapshot]
"""The result for a unit, and the cluster after it."""


def _without_progress(steps: Iterable[SimulationStep], _: int) -> Iterable[SimulationStep]:
    return steps


def simulate(
    snapshot: Snapshot,
    admitted: Sequence[AdmittedPod],
    pods: Iterable[Pod] = (),
    progress: Callable[[Iterable[SimulationStep], int], Iterable[SimulationStep]] = (
        _without_progress
    ),
    running: RunningUnits | None = None,
) -> Simulation:
    """Place pods in turn; denied pods and pods without GPUs take nothing.

    Args:
        snapshot: The cluster.
        admitted: The pods that are created.
        pods: The cluster's pods: running and completed ones count towards their gang's size.
        progress: Yields each step when it is done; its second argument is the number of pods.
        running: The units that may be evicted for others; None: none may.
    """
    placed = [pod for pod in admitted if pod.needs_placement]
    intended = [pod.intended for pod in placed]
    summaries = _Summaries(snapshot, running)
    units: list[UnitResult] = []
    after = snapshot
    members = (pod_info(pod) for pod in pods if gang_mark(pod)[0] is not None)
    steps = simulate_each(snapshot, intended, settled_members(members))
    for result, following in progress(steps, len(intended)):
        units.append(summaries.unit_result(result))
        after = following
    results = {
        id(placed[index]): _placed_result(placed[index], unit, rank)
        for unit in units
        for rank, index in enumerate(unit.places)
    }
    everything = tuple(results.get(id(pod)) or _unplaced_result(pod) for pod in admitted)
    return Simulation(everything, tuple(units), snapshot, after)


class _Summaries:
    """Reduces each result while its step is current, so that no past cluster is kept in memory."""

    def __init__(self, cluster: Snapshot, running: RunningUnits | None) -> None:
        self._cluster = cluster
        self._preemptions = Preemptions(running) if running else None
        self._never: dict[Hashable, bool] = {}
        """By what distinguishes units: pods of one workload are planned once."""

    def unit_result(self, result: SimulatedUnit) -> UnitResult:
        """Return what is shown of a result."""
        never = result.plan is None and self._never_fits(result)
        compared = result.is_gang or (result.plan and result.plan.bandwidth.value is not None)
        return UnitResult(
            result.unit,
            result.places,
            result.plan,
            result.reason,
            _only(result.seen, result.plan.gpus) if result.plan else self._cluster,
            result.best_possible,
            result.index_order if compared else None,
            never,
            () if result.plan or never else self._preempts(result),
        )

    def _preempts(self, result: SimulatedUnit) -> tuple[Preempted, ...]:
        found = self._preemptions and self._preemptions.find(result.seen, result.unit.least)
        return found or ()

    def _never_fits(self, result: SimulatedUnit) -> bool:
        unit = result.unit.least
        if unit.signature not in self._never:
            self._never[unit.signature] = never_fits(self._cluster, unit.members, unit.link)
        return self._never[unit.signature]


def _only(snapshot: Snapshot, names: Iterable[str]) -> Snapshot:
    """Return the snapshot reduced to these nodes."""
    nodes = {name: snapshot.ledger.nodes[name] for name in names}
    return replace(snapshot, ledger=Ledger(nodes))


def _placed_result(admitted: AdmittedPod, unit: UnitResult, rank: int) -> PodResult:
    placement = unit.plan.placements[rank] if unit.plan else None
    gang = unit.name if unit.is_gang else None
    node = placement.node if placement else None
    gpus = placement.gpus if placement else NO_GPUS
    return PodResult(admitted, gang, node, gpus, unit.reason, unit)


def _unplaced_result(admitted: AdmittedPod) -> PodResult:
    """Return the result for a pod that needs no placement."""
    others = admitted.others
    reason = f"asks for {others}: Linkwise does not place it"
    if not others:
        reason = (
            f"asks for no GPU that Linkwise chooses; {_scheduler_of(admitted.pod)} picks its node"
        )
    if admitted.outcome.verdict is Verdict.DENIED:
        errors = [finding for finding in admitted.outcome.findings if finding.severity == "error"]
        reason = "denied: " + "; ".join(f"{error.code} {error.message}" for error in errors)
    return PodResult(admitted, None, None, NO_GPUS, reason)
