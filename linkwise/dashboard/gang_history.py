"""The history of a gang, by the times in its Gang object and in its pods. Pure."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from linkwise.cluster.objects.pod import Pod
from linkwise.planning.gang.crd import Gang
from linkwise.planning.gang.moved import moved_of
from linkwise.runtime.process.clock import rfc3339
from linkwise.views.output.words import plural


class GangEvent(NamedTuple):
    """Something that happened to a gang."""

    time: str
    """RFC 3339."""
    what: str
    message: str = ""


def gang_history(gang: Gang, pods: Sequence[Pod]) -> tuple[GangEvent, ...]:
    """Return what happened to a gang, the oldest first.

    A condition has only its last transition, so pods say when they were created and bound.
    """
    return tuple(sorted((*_of_plan(gang), *_of_conditions(gang), *_of_pods(gang, pods))))


def _of_plan(gang: Gang) -> Iterator[GangEvent]:
    plan = gang.spec.plan
    if plan and plan.planned_at:
        pods, nodes = len(plan.members), len(plan.nodes)
        text = f"{pods} {plural('pod', pods)} on {nodes} {plural('node', nodes)}"
        yield GangEvent(plan.planned_at, "Planned", text)


def _of_conditions(gang: Gang) -> Iterator[GangEvent]:
    for each in gang.status.conditions:
        yield GangEvent(each.last_transition_time, f"{each.type} is {each.status}", each.message)


def _of_pods(gang: Gang, pods: Sequence[Pod]) -> Iterator[GangEvent]:
    created = [pod.metadata.creation_timestamp or "" for pod in pods]
    if any(created):
        yield GangEvent(min(filter(None, created)), "First pod created")
    moved, bound = moved_of(gang), [_bound_since(pod) for pod in pods]
    if moved:
        why = moved.why or "a fault"
        text = f"{why}: all members were evicted, to be placed together elsewhere"
        yield GangEvent(rfc3339(moved.at), "Moved off a fault", text)
    if bound and all(bound):
        again = moved is not None and min(bound) > rfc3339(moved.at)
        yield GangEvent(
            max(bound), "Healed" if again else "Bound", f"all {len(bound)} pods are bound"
        )


def _bound_since(pod: Pod) -> str:
    """Return the time since which a pod has its node; empty if it has none, or it is unknown."""
    times = (
        one.last_transition_time
        for one in pod.status.conditions or ()
        if (one.type, one.status) == ("PodScheduled", "True")
    )
    return next(times, None) or ""
