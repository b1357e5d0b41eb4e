"""Filter and score nodes for one pod. Nothing is reserved; the scheduler may abandon the attempt.

Only GPUs are considered; the scheduler itself checks everything else.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from linkwise.cluster.account.node_ledger import NodeLedger
from linkwise.cluster.allocations.record import Allocation, RecordError, parse_record
from linkwise.cluster.finding import Severity
from linkwise.cluster.gang import gang_mark, is_member
from linkwise.cluster.objects.pod import Pod
from linkwise.cluster.requests.request import Request
from linkwise.cluster.requests.request_reader import read_request
from linkwise.planning.placement.filtering.filters import gpu_capacity, hidden_capacity, mode_serves
from linkwise.planning.placement.filtering.reasons import Reason
from linkwise.planning.placement.score import HIGHEST, NodeValue, node_value, scores
from linkwise.planning.state.cluster_state import ClusterState
from scorer.extender.verdict_cache import VerdictCache


@dataclass(frozen=True, slots=True)
class FilterVerdict:
    """The nodes on which a pod fits, and why it does not fit on the others."""

    names: Sequence[str] = ()
    """Feasible nodes, in the order of the request."""
    resolvable: dict[str, Reason] = field(default_factory=dict)
    """Nodes on which the pod would fit after evictions."""
    unresolvable: dict[str, Reason] = field(default_factory=dict)
    """Nodes on which it would not."""
    request: Request | None = None
    """What the nodes were compared with; None: the verdict does not depend on their GPUs."""


class Infeasible(NamedTuple):
    """Why the GPUs of a node do not satisfy a request."""

    reason: Reason
    resolvable: bool
    """The GPUs of the empty node would."""


_UNKNOWN = Infeasible(Reason.UNKNOWN, resolvable=False)


class Filter:
    """Filters and scores nodes, for one term of the Lease."""

    def __init__(self, state: ClusterState) -> None:
        """Start with an empty cache of the nodes' verdicts."""
        self._state = state
        self._cache = VerdictCache()

    def run(self, pod: Pod, names: Sequence[str]) -> FilterVerdict:
        """Return on which nodes a pod fits.

        A pod without a request that Linkwise places fits on all of them; a pod that has GPUs fits
        on the node of these GPUs.
        """
        allocation = pod_allocation(self._state, pod)
        if isinstance(allocation, Allocation):
            return self._only_on_its_node(pod, allocation, names)
        request = request_of(pod) if allocation is None else allocation
        if isinstance(request, Reason):
            return FilterVerdict(unresolvable=dict.fromkeys(names, request))
        if not request.places:
            return FilterVerdict(names)
        verdicts = self._verdicts(request, pod.spec.priority or 0, names)
        feasible: list[str] = []
        resolvable: dict[str, Reason] = {}
        unresolvable: dict[str, Reason] = {}
        for name, verdict in zip(names, verdicts, strict=True):
            if verdict is None:
                feasible.append(name)
            else:
                (resolvable if verdict.resolvable else unresolvable)[name] = verdict.reason
        return FilterVerdict(feasible, resolvable, unresolvable, request)

    def fits_any(self, request: Request, priority: int, names: Sequence[str]) -> bool:
        """Return whether a pod of such a request and priority fits on one of these nodes."""
        return None in self._verdicts(request, priority, names)

    def score(self, pod: Pod, names: Sequence[str]) -> list[int]:
        """Return the score of each node for a pod, from 0 to 10."""
        allocation = pod_allocation(self._state, pod)
        if isinstance(allocation, Allocation):
            return [HIGHEST * (name == allocation.node) for name in names]
        request = request_of(pod) if allocation is None else allocation
        if isinstance(request, Reason) or not request.places:
            return [0] * len(names)
        table, preferences = self._state.table, self._state.preferences
        ledger, priority = self._state.ledger_for, pod.spec.priority or 0

        def value(name: str) -> NodeValue | None:
            node = ledger(name, priority)
            if node is None:
                return None
            return node_value(node, table(name), request, preferences.mode, preferences.placement)

        self._invalidate()
        question = f"score {preferences.mode} {self._kind(request, priority)}"
        values = self._cache.get_or_compute(question, names, value)
        return scores(values, preferences.placement)

    def _verdicts(
        self, request: Request, priority: int, names: Sequence[str]
    ) -> list[Infeasible | None]:
        """Return, by node, why a pod does not fit; None: it does."""
        ledger = self._state.ledger_for

        def filter_node(name: str) -> Infeasible | None:
            node = ledger(name, priority)
            return filter_gpus(node, request) if node else _UNKNOWN

        self._invalidate()
        question = f"filter {self._kind(request, priority)}"
        return self._cache.get_or_compute(question, names, filter_node)

    def _kind(self, request: Request, priority: int) -> str:
        """Identify pods of which each node fits all or none."""
        amounts = f"{request.gpus} {request.memory} {request.core}"
        passed = self._state.reserved.passed_priority(priority)
        return f"{request.family} {request.resource} {amounts} {passed}"

    def _invalidate(self) -> None:
        self._cache.invalidate(self._state.drain_dirty_nodes())

    def _only_on_its_node(
        self, pod: Pod, allocation: Allocation, names: Sequence[str]
    ) -> FilterVerdict:
        node = self._state.ledger(allocation.node)
        if node is None or pod.metadata.uid not in node.holdings:
            # Its GPUs were allocated twice, or the node was replaced: the pod will be evicted.
            return FilterVerdict(unresolvable=dict.fromkeys(names, Reason.LOST))
        others = {name: Reason.ELSEWHERE for name in names if name != allocation.node}
        return FilterVerdict(
            [name for name in names if name == allocation.node], unresolvable=others
        )


def pod_allocation(state: ClusterState, pod: Pod) -> Allocation | Reason | None:
    """Return the GPUs that a pod has, assumed or recorded; None: it has no GPUs yet."""
    metadata = pod.metadata
    known = state.pod((metadata.namespace, metadata.name))
    usage = known.usage if known and known.uid == metadata.uid else None
    if usage and usage.allocation:
        return usage.allocation
    try:
        return parse_record(pod.annotations)
    except RecordError:
        return Reason.LOST


def request_of(pod: Pod) -> Request | Reason:
    """Return the request of a pod, or why it gets no GPUs on any node."""
    request, findings = read_request(pod)
    if not request.places:
        return request
    if any(finding.severity is Severity.ERROR for finding in findings):
        return Reason.REQUEST
    mark, _ = gang_mark(pod)
    return Reason.GATE if mark and is_member(pod, request, mark) else request


def filter_gpus(node: NodeLedger, request: Request) -> Infeasible | None:
    """Return why the GPUs of a node do not satisfy a request now; None: they do."""
    if not mode_serves(node.node, request):
        return Infeasible(Reason.MODE, resolvable=False)
    if (hidden := hidden_capacity(node)) is not None:
        return Infeasible(hidden, resolvable=False)
    capacity = gpu_capacity(node, request)
    if not isinstance(capacity, Reason):
        return None
    when_empty = gpu_capacity(node.without_pods(), request)
    return Infeasible(capacity, resolvable=not isinstance(when_empty, Reason))
