"""Which nodes may take a pod, and which rather: nothing is kept for who asks, who may give up.

Only GPUs are looked at; everything else is the scheduler's own business, of which it knows more.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from cluster.finding import Severity
from cluster.gang import gang_mark, is_member
from cluster.ledger import NodeLedger
from cluster.pod import Pod
from cluster.record import Allocation, RecordError, parse_record
from cluster.request import Request, read_request
from scorer.cache.cluster_state import ClusterState
from scorer.extender.verdict_cache import VerdictCache
from scorer.placement.filters import gives, gpu_capacity, hidden_capacity
from scorer.placement.reasons import Reason
from scorer.placement.score import HIGHEST, Worth, scores, worth_of


@dataclass(frozen=True, slots=True)
class FilterVerdict:
    """What became of the nodes that were asked about."""

    names: Sequence[str] = ()
    """Those that may take the pod, in the order in which they were asked about."""
    resolvable: dict[str, Reason] = field(default_factory=dict)
    """Why not the others, where pods could be evicted to make room."""
    unresolvable: dict[str, Reason] = field(default_factory=dict)
    """Why not, where no eviction helps."""


class Obstacle(NamedTuple):
    """What keeps a pod from the GPUs of a node."""

    reason: Reason
    resolvable: bool
    """Were nothing there, it would fit."""


_UNKNOWN = Obstacle(Reason.UNKNOWN, resolvable=False)


class Filter:
    """Answers for one term of the Lease."""

    def __init__(self, state: ClusterState) -> None:
        """Say what is known of the cluster."""
        self._state = state
        self._known = VerdictCache()

    def run(self, pod: Pod, names: Sequence[str]) -> FilterVerdict:
        """Tell nodes that may take a pod from those that may not.

        A pod that asks for nothing that Linkwise places may go anywhere; one that was given GPUs
        goes where they are.
        """
        given = given_to(self._state, pod)
        if isinstance(given, Allocation):
            return self._at_its_place(pod, given, names)
        request = request_of(pod) if given is None else given
        if isinstance(request, Reason):
            return FilterVerdict(unresolvable=dict.fromkeys(names, request))
        if not request.places:
            return FilterVerdict(names)
        ledger = self._state.ledger

        def obstacle(name: str) -> Obstacle | None:
            node = ledger(name)
            return filter_node(node, request) if node else _UNKNOWN

        self._forget()
        obstacles = self._known.ask(f"fits {_kind(request)}", names, obstacle)
        fits: list[str] = []
        resolvable: dict[str, Reason] = {}
        unresolvable: dict[str, Reason] = {}
        for name, found in zip(names, obstacles, strict=True):
            if found is None:
                fits.append(name)
            else:
                (resolvable if found.resolvable else unresolvable)[name] = found.reason
        return FilterVerdict(fits, resolvable, unresolvable)

    def score(self, pod: Pod, names: Sequence[str]) -> list[int]:
        """Return how well each node suits a pod, from 0 to 10."""
        given = given_to(self._state, pod)
        if isinstance(given, Allocation):
            return [HIGHEST * (name == given.node) for name in names]
        request = request_of(pod) if given is None else given
        if isinstance(request, Reason) or not request.places:
            return [0] * len(names)
        ledger, table, prefers = self._state.ledger, self._state.table, self._state.preferences

        def worth(name: str) -> Worth | None:
            node = ledger(name)
            if node is None:
                return None
            return worth_of(node, table(name), request, prefers.mode, prefers.placement)

        self._forget()
        worths = self._known.ask(f"{prefers.mode} {_kind(request)}", names, worth)
        return scores(worths, prefers.placement)

    def _forget(self) -> None:
        self._known.forget(self._state.drain_dirty_nodes())

    def _at_its_place(self, pod: Pod, given: Allocation, names: Sequence[str]) -> FilterVerdict:
        node = self._state.ledger(given.node)
        if node is None or pod.metadata.uid not in node.holdings:
            # It waits to be sent away: two were given the same GPU, or the node is another by now.
            return FilterVerdict(unresolvable=dict.fromkeys(names, Reason.LOST))
        elsewhere = {name: Reason.ELSEWHERE for name in names if name != given.node}
        return FilterVerdict([name for name in names if name == given.node], unresolvable=elsewhere)


def given_to(state: ClusterState, pod: Pod) -> Allocation | Reason | None:
    """Return what a pod was given already, by us just now or as it says itself; None: nothing."""
    metadata = pod.metadata
    seen = state.pod((metadata.namespace, metadata.name))
    usage = seen.usage if seen and seen.uid == metadata.uid else None
    if usage and isinstance(usage.record, Allocation):
        return usage.record
    try:
        return parse_record(pod.annotations)
    except RecordError:
        return Reason.LOST


def request_of(pod: Pod) -> Request | Reason:
    """Return what a pod asks for, or why it is given nothing wherever there is room."""
    request, findings = read_request(pod)
    if not request.places:
        return request
    if any(finding.severity is Severity.ERROR for finding in findings):
        return Reason.REQUEST
    mark, _ = gang_mark(pod)
    return Reason.GATE if mark and is_member(pod, request, mark) else request


def filter_node(node: NodeLedger, request: Request) -> Obstacle | None:
    """Say what keeps a request from a node's GPUs now, or None."""
    if not gives(node.node.mode, request):
        return Obstacle(Reason.MODE, resolvable=False)
    if (hidden := hidden_capacity(node)) is not None:
        return Obstacle(hidden, resolvable=False)
    room = gpu_capacity(node, request)
    if not isinstance(room, Reason):
        return None
    return Obstacle(room, resolvable=not isinstance(gpu_capacity(node.emptied(), request), Reason))


def _kind(request: Request) -> str:
    return f"{request.family} {request.gpus} {request.memory} {request.core}"
