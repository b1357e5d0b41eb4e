"""Events of the Kubernetes API that tell people what became of a gang, or of a node."""

from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256

from cluster.keys import SCORER
from scorer.gang.crd import GangPlan

LONGEST = 1024
"""The API server refuses a longer message [characters]."""
_NAME_MAX = 253 - 17
_NODES_SHOWN = 3
_GANG_SHOWN = 63


class EventReason(StrEnum):
    """What happened, in a word for machines."""

    POD_WAITING = "WaitingForGPUs"
    WAITING = "GangWaiting"
    PARTIAL = "GangPartial"
    PLACED = "GangPlaced"
    EVICTED = "GangEvicted"
    UNACCOUNTED = "NodeUnaccounted"


@dataclass(frozen=True, slots=True)
class ObjectReference:
    """Where the event is seen: at the job, or at a pod where there is none, or at a node."""

    api_version: str
    kind: str
    name: str
    uid: str
    namespace: str = ""
    """Empty for a node."""

    @property
    def home(self) -> str:
        """The namespace of its events."""
        return self.namespace or "default"


@dataclass(frozen=True, slots=True)
class EventMessage:
    """What is told."""

    what: EventReason
    message: str


def waiting(gang: str, why: str) -> EventMessage:
    """Return that a gang does not start, and why not."""
    return EventMessage(EventReason.WAITING, f"Gang {_shown(gang)} waits: {why}")


def pod_waiting(why: str) -> EventMessage:
    """Return that a pod on its own does not start, and why not."""
    return EventMessage(EventReason.POD_WAITING, f"Waits for its GPUs: {why}")


def partial(gang: str, given: int, needed: int | None, why: str) -> EventMessage:
    """Return that some members of a gang have their GPUs, and that others cannot get theirs.

    Args:
        gang: Its name.
        given: Members that have theirs.
        needed: How many there must be; None where nothing tells.
        why: Why the others have none.
    """
    told = f"{given} of {needed or '?'} members of gang {_shown(gang)} have their GPUs"
    return EventMessage(EventReason.PARTIAL, f"{told}, the others do not: {why}")


def placed(gang: str, plan: GangPlan, *, alike: bool = True) -> EventMessage:
    """Return that all members of a gang are bound.

    Args:
        gang: Its name.
        plan: Where they are.
        alike: Whether they all ask for the same, as members of a gang should.
    """
    unlike = "" if alike else "; they do not all ask for the same"
    members = _members(gang, len(plan.members), "is", "are")
    return EventMessage(
        EventReason.PLACED, f"{members} on {_nodes(plan.nodes)}{_bandwidth(plan)}{unlike}"
    )


def evicted(gang: str, members: int, why: str) -> EventMessage:
    """Return that all members of a gang were evicted, to be placed again.

    Args:
        gang: Its name.
        members: How many.
        why: Which of them could not be bound, and where.
    """
    told = _members(gang, members, "was", "were")
    return EventMessage(EventReason.EVICTED, f"{told} evicted, to be placed again together: {why}")


def unaccounted(why: str) -> EventMessage:
    """Return that nothing more is placed on a node, since nobody knows what is free there."""
    message = f"No pod gets GPUs here until it is known which ones are in use: {why}"
    return EventMessage(EventReason.UNACCOUNTED, message)


def event_of(
    news: EventMessage, about: ObjectReference, *, change: str, now: str, instance: str
) -> dict[str, object]:
    """Return what is sent to `/api/v1/namespaces/<about.home>/events`.

    Args:
        news: What is told.
        about: Of which object.
        change: What tells this change of state from the one before, such as the plan's id: all
            replicas give the event of one change one name, so that it is made once.
        now: RFC 3339.
        instance: Which replica says so.
    """
    told = f"{about.uid}/{news.what}/{change}"
    digest = sha256(told.encode()).hexdigest()[:16]
    text = news.message
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{about.name[:_NAME_MAX].rstrip('.-')}.{digest}",
            "namespace": about.home,
        },
        "involvedObject": {
            "apiVersion": about.api_version,
            "kind": about.kind,
            "name": about.name,
            "namespace": about.namespace,
            "uid": about.uid,
        },
        "type": "Normal" if news.what is EventReason.PLACED else "Warning",
        "reason": news.what.value,
        "message": text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…",
        "source": {"component": SCORER, "host": instance},
        "reportingComponent": SCORER,
        "reportingInstance": instance,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }


def _bandwidth(plan: GangPlan) -> str:
    if plan.bandwidth is None:
        return ""
    best = f" of {plan.best_possible:g} possible" if plan.best_possible is not None else ""
    plain = f", {plan.index_order:g} in index order" if plan.index_order is not None else ""
    return f": {plan.bandwidth:g} GB/s{best}{plain}"


def _members(gang: str, count: int, one: str, many: str) -> str:
    if count == 1:
        return f"The only member of gang {_shown(gang)} {one}"
    return f"All {count} members of gang {_shown(gang)} {many}"


def _shown(gang: str) -> str:
    """Return a name, which may be any text, as it can be printed."""
    return "".join(sign if sign.isprintable() else "?" for sign in gang[:_GANG_SHOWN])


def _nodes(nodes: tuple[str, ...]) -> str:
    return ", ".join(nodes) if len(nodes) <= _NODES_SHOWN else f"{len(nodes)} nodes"
