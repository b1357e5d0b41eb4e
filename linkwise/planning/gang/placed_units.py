"""Gather the pods that hold GPUs into the units that may be evicted for another one. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import NamedTuple

from linkwise.cluster.account.node_ledger import Holding, NodeLedger
from linkwise.cluster.gang import GangKey
from linkwise.cluster.keys import KUEUE_LABELS
from linkwise.cluster.objects.kube_object import Labels
from linkwise.cluster.objects.time import seconds_of
from linkwise.planning.gang.budgets import conflict_of
from linkwise.planning.gang.owners import Owners
from linkwise.planning.gang.pod_info import PodInfo
from linkwise.planning.placement.preemption.victim import Victim, VictimPod
from linkwise.policy.gangs_section import Preemption
from linkwise.workloads.members import ExpectedPods
from linkwise.workloads.registry import kind_of

_CRITICAL = 2_000_000_000
"""The priority of `system-cluster-critical`; users cannot create a class above half of it."""

_END = 30.0
"""Time after the grace period in which a pod should have ended [s]."""


@dataclass(frozen=True, slots=True)
class EvictionRules:
    """The rules that say which units may be evicted now."""

    now: float
    """[s since the epoch]"""
    policy: Preemption
    """Says for how long units stay, and whether pods of others may be evicted."""
    fragile: Set[str]
    """Uids of the Jobs that count an evicted pod as a failure."""
    started: Callable[[PodInfo], str]
    """Return when a pod started (RFC 3339); empty: it is not known, and does not protect it."""
    budgets: Callable[[str, Labels | None], frozenset[str] | None]
    """Return the PodDisruptionBudgets that select a pod of a namespace by its labels, as
    `namespace/name`; None: there are too many."""
    has_kueue: bool = True
    """Kueue is installed, so that its labels mean something; also where that is not known."""

    @property
    def min_run(self) -> float:
        """Time since the start of its first pod for which a unit is not evicted [s]."""
        return self.policy.min_run_minutes * 60

    @property
    def has_others(self) -> bool:
        """Pods that Linkwise did not place may be evicted, each by itself."""
        return self.policy.others == "lowerPriority"

    def start_of(self, pod: PodInfo) -> float | None:
        """Return when a pod started [s since the epoch]; None: it is not known."""
        return seconds_of(self.started(pod))

    def is_young(self, started: float | None) -> bool:
        """Return whether something that started then has not run for long enough."""
        return started is not None and self.now - started < self.min_run


class PlacedUnit(NamedTuple):
    """A unit that has GPUs."""

    key: GangKey
    victim: Victim
    pods: tuple[PodInfo, ...]
    """All of them that stay, with GPUs."""


class _Held(NamedTuple):
    """A pod with GPUs, and its entry in the ledger of its node; None: they are not known."""

    pod: PodInfo
    node: str
    holding: Holding | None


def placed_units(
    pods: Iterable[PodInfo], owners: Owners, nodes: Mapping[str, NodeLedger], rules: EvictionRules
) -> list[PlacedUnit]:
    """Return the units that hold GPUs which Linkwise chose, and by the rules single pods of others.

    Pods that are being deleted are left out: their GPUs become free without an eviction. So are
    pods that live as long as their node, since they come back there at once.

    Args:
        pods: All pods of these units; those that wait count in the priority of their gang.
        owners: The owners of these pods.
        nodes: The ledgers, by node.
        rules: Which units may be evicted.

    Cost: linear in the pods.
    """
    members: dict[GangKey, list[PodInfo]] = {}
    for pod in pods:
        usage = pod.usage
        if usage is not None and (usage.places or usage.is_of_others or pod.gang):
            members.setdefault(owners.key(pod), []).append(pod)
    units = []
    for key, found in members.items():
        if not (rules.has_others or any(pod.usage.places for pod in found if pod.usage)):
            continue
        running = [pod for pod in found if _has_gpus(pod)]
        spare = _spare(running, owners.expected_of(key), rules)
        held = [_held(pod, nodes) for pod in (*_without(running, spare), *spare)]
        if held:
            blocker = _blocker(held, rules) or _tie(running, owners)
            units.append(_placed_unit(key, found, held, len(spare), blocker, rules))
    return units


def eviction_blocker(pods: Iterable[PodInfo], fragile: Set[str]) -> str | None:
    """Return why pods must not be evicted; None: they may be.

    Args:
        pods: All members of a gang.
        fragile: Uids of the Jobs that count an evicted pod as a failure.
    """
    for pod in pods:
        if pod.usage and pod.usage.shares_claim:
            return f"another pod uses the claim of pod {pod.name}, and so its GPUs"
        if pod.controller is None:
            return f"pod {pod.name} has no controller that would create it again"
        if pod.controller.uid in fragile:
            return (
                f"Job {pod.controller.name} would count an evicted pod as a failure: give it a "
                "podFailurePolicy that ignores DisruptionTarget, or delete the pods yourself"
            )
    return None


def ends_soon(pod: PodInfo, now: float) -> bool:
    """Return whether a pod is being deleted, unless its time to end has passed.

    Args:
        pod: A pod that has GPUs.
        now: [s since the epoch]
    """
    ends = seconds_of(pod.life.ends) if pod.is_ending and pod.life else None
    return ends is not None and now < ends + _END


def is_of_kueue(labels: Labels | None) -> bool:
    """Return whether Kueue admits a pod: its own preemption decides who has quota."""
    return any(label in (labels or {}) for label in KUEUE_LABELS)


def labels_of(pod: PodInfo) -> Labels | None:
    """Return the labels of a pod with GPUs; None: they are too many to be kept."""
    return pod.life.labels if pod.life else {}


def _has_gpus(pod: PodInfo) -> bool:
    usage = pod.usage
    return pod.settled and usage is not None and bool(usage.target) and not usage.stays


def _held(pod: PodInfo, nodes: Mapping[str, NodeLedger]) -> _Held:
    node = pod.usage.target if pod.usage else ""
    holding = nodes[node].holdings.get(pod.uid) if node in nodes else None
    return _Held(pod, node, holding if holding and holding.gpus else None)


def _spare(
    pods: Sequence[PodInfo], expected: ExpectedPods | None, rules: EvictionRules
) -> list[PodInfo]:
    """Return the pods without which an elastic gang goes on running: of each set the last ones.

    A young pod stays, and counts in the minimum. The first pod of a minimum stays, too: the others
    may find each other by it. One pod stays in any case.
    """
    spare: list[PodInfo] = []
    for each in expected.elastic if expected else ():
        others_of = _without(pods, spare)
        own = [pod for pod in others_of if each.labels <= {*(labels_of(pod) or {}).items()}]
        own.sort(key=lambda pod: (len(pod.name), pod.name))
        others = own[1:] if each.least else own
        old = [pod for pod in others if not rules.is_young(rules.start_of(pod))]
        surplus = max(0, len(own) - each.least)
        spare += old[max(0, len(old) - surplus) :]
    return spare[1:] if len(spare) == len(pods) else spare


def _without(pods: Sequence[PodInfo], others: Sequence[PodInfo]) -> list[PodInfo]:
    uids = {pod.uid for pod in others}
    return [pod for pod in pods if pod.uid not in uids]


def _placed_unit(
    key: GangKey,
    members: Sequence[PodInfo],
    held: Sequence[_Held],
    spare: int,
    blocker: str | None,
    rules: EvictionRules,
) -> PlacedUnit:
    budgets = [rules.budgets(each.pod.namespace, labels_of(each.pod)) for each in held]
    starts = [rules.start_of(each.pod) for each in held]
    victim = Victim(
        name=f"{key.namespace}/{key.name}",
        priority=max(pod.usage.priority for pod in members if pod.usage),
        pods=tuple(
            VictimPod(
                each.node,
                each.holding,
                _at_most(started, rules.now),
                of or frozenset(),
                each.pod.life.grace if each.pod.life else 0,
            )
            for each, started, of in zip(held, starts, budgets, strict=True)
            if each.holding
        ),
        protected=blocker
        or ("its namespace has too many PodDisruptionBudgets" if None in budgets else None)
        or next(filter(None, (conflict_of(of or ()) for of in budgets)), None)
        or _youth(starts, rules),
        spare=spare,
    )
    return PlacedUnit(key, victim, tuple(each.pod for each in held))


def _blocker(held: Sequence[_Held], rules: EvictionRules) -> str | None:
    """Return why a unit must not be evicted, whatever its age; None: it may be."""
    for pod, _, holding in held:
        if holding is None:
            return f"it is not known which GPUs pod {pod.name} has"
        if not pod.bound:
            return f"pod {pod.name} is not bound yet"
        if rules.has_kueue and is_of_kueue(labels_of(pod)):
            return "Kueue decides about its preemption"
    return eviction_blocker((each.pod for each in held), rules.fragile)


def _tie(pods: Iterable[PodInfo], owners: Owners) -> str | None:
    """Return why a unit must not be evicted of which Linkwise did not place all pods.

    None: it may be.
    """
    others = (pod for pod in pods if pod.usage and not pod.usage.places)
    return next(filter(None, (_tie_of(pod, owners) for pod in others)), None)


def _tie_of(pod: PodInfo, owners: Owners) -> str | None:
    """Return why a pod that Linkwise did not place must not be evicted; None: it may be."""
    if pod.usage is None:
        return None
    if pod.life and pod.life.tie:
        return f"pod {pod.name} {pod.life.tie}"
    if pod.usage.priority >= _CRITICAL:
        return f"pod {pod.name} has a priority of system components"
    owner = owners.top(pod.controller)
    kind = kind_of(owner.api_version, owner.kind) if owner else None
    if owner and kind and kind.gang:
        return f"pod {pod.name} is part of {owner.kind} {owner.name}, whose pods are a gang"
    return None


def _youth(starts: Iterable[float | None], rules: EvictionRules) -> str | None:
    """Return that a unit has not run for long enough since its first pod started; None: it has.

    A single pod that is new must not protect a gang: it would be protected for ever by a member
    that is created again and again.
    """
    first = min((started for started in starts if started is not None), default=None)
    return f"it started less than {rules.min_run / 60:g} min ago" if rules.is_young(first) else None


def _at_most(started: float | None, now: float) -> float:
    """Return a start that is not in the future; now where it is unknown, so that none is lost."""
    return now if started is None else min(started, now)
