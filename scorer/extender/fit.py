"""Which nodes may take a pod, and which rather. Pure: a scheduler never says that it gave up.

Only GPUs are looked at; everything else is the scheduler's own business, of which it knows more.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from cluster.finding import Severity
from cluster.gang import gang_mark, is_member
from cluster.ledger import NodeLedger
from cluster.pod import Pod
from cluster.record import Allocation
from cluster.request import Request, read_request
from scorer.extender.answers import Answers
from scorer.rank import HIGHEST, Worth, scores, worth_of
from scorer.reason import Reason
from scorer.room import gives, gpu_room
from scorer.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Sifted:
    """What became of the nodes that were asked about."""

    names: Sequence[str] = ()
    """Those that may take the pod, in the order in which they were asked about."""
    curable: dict[str, Reason] = field(default_factory=dict)
    """Why not the others, where pods could be evicted to make room."""
    incurable: dict[str, Reason] = field(default_factory=dict)
    """Why not, where no eviction helps."""


class Obstacle(NamedTuple):
    """What keeps a pod from the GPUs of a node."""

    reason: Reason
    curable: bool
    """Were nothing there, it would fit."""


_UNKNOWN = Obstacle(Reason.UNKNOWN, curable=False)


def request_of(pod: Pod) -> Request | Reason:
    """Return what a pod asks for, or why it is given nothing wherever there is room."""
    request, findings = read_request(pod)
    if not request.places:
        return request
    if any(finding.severity is Severity.ERROR for finding in findings):
        return Reason.REQUEST
    mark, _ = gang_mark(pod)
    return Reason.GATE if mark and is_member(pod, request, mark) else request


def sift(
    known: Answers, snapshot: Snapshot, pod: Pod, given: Allocation | None, names: Sequence[str]
) -> Sifted:
    """Tell nodes that may take a pod from those that may not.

    A pod that asks for nothing that Linkwise places may go anywhere; one that was given GPUs goes
    where they are.

    Args:
        known: What was found out about nodes before.
        snapshot: The cluster.
        pod: As the scheduler sees it.
        given: What it has already; None where nothing.
        names: Of the nodes.
    """
    if given is not None:
        return _at_its_place(snapshot, pod, given, names)
    request = request_of(pod)
    if isinstance(request, Reason):
        return Sifted(incurable=dict.fromkeys(names, request))
    if not request.places:
        return Sifted(names)
    nodes = snapshot.ledger.nodes

    def obstacle(name: str) -> Obstacle | None:
        return obstacle_of(nodes[name], request) if name in nodes else _UNKNOWN

    obstacles = known.ask(f"fits {_kind(request)}", names, obstacle)
    fits: list[str] = []
    curable: dict[str, Reason] = {}
    incurable: dict[str, Reason] = {}
    for name, found in zip(names, obstacles, strict=True):
        if found is None:
            fits.append(name)
        else:
            (curable if found.curable else incurable)[name] = found.reason
    return Sifted(fits, curable, incurable)


def rank(
    known: Answers, snapshot: Snapshot, pod: Pod, given: Allocation | None, names: Sequence[str]
) -> list[int]:
    """Return how well each node suits a pod, from 0 to 10; the arguments are those of `sift`."""
    if given is not None:
        return [HIGHEST * (name == given.node) for name in names]
    request = request_of(pod)
    if isinstance(request, Reason) or not request.places:
        return [0] * len(names)
    nodes, tables = snapshot.ledger.nodes, snapshot.tables
    mode, placement = snapshot.mode, snapshot.placement

    def worth(name: str) -> Worth | None:
        if name not in nodes:
            return None
        return worth_of(nodes[name], tables.get(name), request, mode, placement)

    return scores(known.ask(f"{mode} {_kind(request)}", names, worth), placement)


def obstacle_of(node: NodeLedger, request: Request) -> Obstacle | None:
    """Say what keeps a request from a node's GPUs now, or None."""
    if not gives(node.node.mode, request):
        return Obstacle(Reason.MODE, curable=False)
    if node.unaccounted:
        return Obstacle(Reason.UNACCOUNTED, curable=False)
    room = gpu_room(node, request)
    if not isinstance(room, Reason):
        return None
    return Obstacle(room, curable=not isinstance(gpu_room(node.emptied(), request), Reason))


def _kind(request: Request) -> str:
    return f"{request.family} {request.gpus} {request.memory} {request.core}"


def _at_its_place(snapshot: Snapshot, pod: Pod, given: Allocation, names: Sequence[str]) -> Sifted:
    node = snapshot.ledger.nodes.get(given.node)
    if node is None or pod.metadata.uid not in node.holdings:
        # It waits to be sent away: two were given the same GPU, or the node is another by now.
        return Sifted(incurable=dict.fromkeys(names, Reason.LOST))
    elsewhere = {name: Reason.ELSEWHERE for name in names if name != given.node}
    return Sifted([name for name in names if name == given.node], incurable=elsewhere)
