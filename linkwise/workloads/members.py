"""The pods with GPUs that a workload makes: their number, their names, and their order."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from linkwise.cluster.objects.pod import Pod
from linkwise.cluster.requests.demand import Demand
from linkwise.cluster.requests.pod_demand import demand_of
from linkwise.workloads.kind import Kind, OrderedStart, Workload
from linkwise.workloads.operator_keys import KUEUE_MIN_PARALLELISM
from linkwise.workloads.pod_set import PodSet
from linkwise.workloads.state import OwnerState


class LateLauncher(NamedTuple):
    """A launcher that is made once all workers of its MPIJob are ready.

    It asks for GPUs as a worker does, of which it needs no more than one of them.
    """

    job: str
    """Name of the batch Job that makes its pod."""
    gpus: int
    demand: Demand


class ElasticSet(NamedTuple):
    """Pods of an owner of which some may end while the others go on running."""

    labels: frozenset[tuple[str, str]]
    """Of each of these pods."""
    least: int
    """Number of those that must stay."""


@dataclass(frozen=True, slots=True)
class ExpectedPods:
    """The pods with GPUs that an owner makes, where their names are known."""

    parts: tuple[tuple[str, int], ...] = ()
    """Prefixes of its pods' names, before `-0` and the following numbers, and their number."""
    ordered: OrderedStart | None = None
    """It makes some pods only when others are ready."""
    late_launcher: LateLauncher | None = None
    """It makes this pod last; the GPUs are planned with those of the others."""
    elastic: tuple[ElasticSet, ...] = ()
    """Pods of which it needs a part only."""
    starts_with: int | None = None
    """How many of them suffice to start; None: it needs all."""


class OwnerPods(NamedTuple):
    """What an owner of pods declares."""

    state: OwnerState = OwnerState.ACTIVE
    members: int = 0
    expected: ExpectedPods = ExpectedPods()
    total: int = 0
    """Its pods, also those without GPUs; of one group, as the members. 0: it may have been made
    with more."""


def declared(kind: Kind, workload: Workload, uid: str) -> OwnerPods:
    """Return what an owner declares; nothing where the object is another one of its name.

    Args:
        kind: Of the owner.
        workload: The object of the owner's name.
        uid: Of the owner.
    """
    if workload.metadata.uid != uid:
        return OwnerPods()
    every = workload.pod_sets()
    sets = placed(every)
    expected = _expected(sets, ordered_start(kind, workload, sets))
    is_reduced = KUEUE_MIN_PARALLELISM in (workload.metadata.annotations or {})
    total = 0 if is_reduced else sum(pods.count for pods in every)
    return OwnerPods(workload.state, _number(workload, sets), expected, total)


def members_of(workload: Workload) -> int:
    """Return how many pods with GPUs that Linkwise chooses a workload declares.

    For a LeaderWorkerSet it is the number of one group.
    """
    return _number(workload, placed(workload.pod_sets()))


def sufficient_of(workload: Workload) -> int | None:
    """Return how many of these pods suffice to start; None: all are needed."""
    return _starts_with(placed(workload.pod_sets()))


def _number(workload: Workload, sets: Sequence[PodSet]) -> int:
    total, least = sum(pods.count for pods in sets), workload.min_members
    return total if least is None else min(total, least)


def placed(sets: Sequence[PodSet]) -> list[PodSet]:
    """Return the sets whose pods ask for GPUs that Linkwise chooses.

    Late pods are left out unless they ask for the same as others: their GPUs are reserved before
    they exist. Where no set asks for GPUs by resources, those count that get devices by a
    ResourceClaimTemplate: what it asks for is not known here.
    """
    requests = [(pods, request) for pods in sets if pods.count and (request := pods.request)]
    if not requests:
        return [pods for pods in sets if pods.count and pods.uses_template and not pods.is_late]
    early = [request for pods, request in requests if not pods.is_late]
    return [
        pods
        for pods, request in requests
        if not pods.is_late or any(map(request.is_part_of, early))
    ]


def ordered_start(kind: Kind, workload: Workload, sets: Sequence[PodSet]) -> OrderedStart | None:
    """Return how a gang's pods wait for each other; None where all are made at once.

    Args:
        kind: Of the workload.
        workload: It makes the gang.
        sets: The sets of pods with GPUs in the gang.
    """
    ordered = kind.ordered
    if ordered is None or not sets or not workload.starts_in_order:
        return None
    return ordered if ordered.within_a_set or len(sets) > 1 else None


def _expected(sets: Sequence[PodSet], ordered: OrderedStart | None) -> ExpectedPods:
    """Return pods by their names; none where these have random suffixes."""
    late = next((pods for pods in sets if pods.is_late), None)
    return ExpectedPods(
        tuple((pods.prefix, pods.count) for pods in sets if pods.prefix),
        ordered,
        _late_launcher(late) if late else None,
        tuple(_elastic(pods, pods.least) for pods in sets if pods.least is not None),
        _starts_with(sets),
    )


def _starts_with(sets: Sequence[PodSet]) -> int | None:
    """Return how many pods suffice to start, at least one; None: all are needed."""
    fewest = sum(_fewest(pods) for pods in sets)
    return max(fewest, 1) if fewest < sum(pods.count for pods in sets) else None


def _fewest(pods: PodSet) -> int:
    return pods.count if pods.starts_with is None else min(max(pods.starts_with, 0), pods.count)


def _elastic(pods: PodSet, least: int) -> ElasticSet:
    # The labels with the index of a pod differ.
    first, second = pods.stamp(0).labels, pods.stamp(1).labels
    return ElasticSet(frozenset(first.items() & second.items()), max(least, 0))


def _late_launcher(pods: PodSet) -> LateLauncher | None:
    request = pods.request
    job = pods.stamp(0).name
    return LateLauncher(job, request.gpus, demand_of(Pod(spec=pods.spec))) if request else None
