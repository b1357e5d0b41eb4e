"""The record of a move, an annotation of the Gang: each leader completes the moves of the last.

Pure. It names the plan that was given up. Pods of another plan are never evicted by it.
"""

from collections.abc import Iterable
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from linkwise.cluster.keys import MOVED
from linkwise.planning.gang.crd import Gang
from linkwise.planning.gang.pod_info import PodInfo
from linkwise.runtime.process.clock import YEAR_10000

LONGEST = 600.0
"""Time after which a move counts as ended, whatever became of it [s]."""


class Moved(Struct, frozen=True):
    """A gang was, or is being, evicted."""

    plan: str
    """The id of the plan that was given up."""
    at: Annotated[float, Meta(ge=0, lt=YEAR_10000)]
    """When [s since 1970]."""
    why: str
    """The faults, for users; empty if they ended before the move."""
    is_over: bool = False
    """An eviction was refused: members that were evicted go back to their places, and the others
    stay."""


def moved_of(gang: Gang) -> Moved | None:
    """Return the last move of a gang; None: it was never moved, or its record is not readable."""
    try:
        return _decoder.decode(gang.metadata.annotations.get(MOVED, ""))
    except msgspec.DecodeError:
        return None


def moved_text(moved: Moved) -> str:
    """Return a move as it is written."""
    return msgspec.json.encode(moved).decode()


def left_behind(
    gang: Gang, moved: Moved | None, pods: Iterable[PodInfo], now: float
) -> tuple[PodInfo, ...]:
    """Return the pods that a move has not evicted yet; none where none is under way."""
    plan = gang.spec.plan
    if moved is None or moved.is_over or now >= moved.at + LONGEST:
        return ()
    if plan is None or plan.id != moved.plan:
        return ()
    planned = {member.uid for member in plan.members}
    return tuple(pod for pod in running(pods) if pod.uid in planned)


def is_moving(gang: Gang, moved: Moved | None, pods: Iterable[PodInfo], now: float) -> bool:
    """Return whether a gang that was moved is not running again."""
    plan = gang.spec.plan
    if moved is None or moved.is_over or now >= moved.at + LONGEST:
        return False
    pods = tuple(pods)
    is_placed_again = plan is not None and plan.id != moved.plan and bool(pods)
    return not (is_placed_again and all(pod.bound for pod in pods))


def running(pods: Iterable[PodInfo]) -> tuple[PodInfo, ...]:
    """Return the pods that have GPUs, and are not being deleted."""
    return tuple(pod for pod in pods if pod.settled and pod.usage is not None)


_decoder = msgspec.json.Decoder(Moved)
