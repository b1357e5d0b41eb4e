"""Messages of the Events about gangs, pods and nodes."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from linkwise.cluster.keys import NVIDIA_GPU, PLACED
from linkwise.planning.gang.crd_plan import GangPlan
from linkwise.planning.gang.plan_record import recorded_bandwidths
from linkwise.planning.gang.pod_info import PodInfo
from linkwise.planning.placement.bandwidth import Bandwidth
from linkwise.runtime.kube.event_recorder import Event, ObjectReference

SHARED = "it has its devices already, and the pod shares them"
"""Why a claim that a pod names is delegated to kube-scheduler, which binds the pod to its node."""
FENCED = (
    "kube-scheduler finds no devices for its claims, and GPUs of nodes with the taint "
    f"{PLACED} (DeviceTaintRules of Linkwise) are not for such claims; ask for {NVIDIA_GPU} there"
)
"""About a pod with claims of its own that waits beside fenced nodes."""
POD_WAITS = "Waits for its GPUs: "
"""How an Event about a pod without a gang begins; the reason follows."""
_NODES_SHOWN = 3
_GANG_SHOWN = 63
_REASON_SHOWN = 300


class EventReason(StrEnum):
    """The reason of an Event."""

    POD_WAITING = "WaitingForGPUs"
    WAITING = "GangWaiting"
    PARTIAL = "GangPartial"
    PLACED = "GangPlaced"
    EVICTED = "GangEvicted"
    PREEMPTED = "Preempted"
    PREEMPTING = "Preempting"
    UNHEALTHY = "GangGPUUnhealthy"
    UNACCOUNTED = "NodeUnaccounted"
    MACHINE_REFUSED = "NodeMachineRefused"
    CLAIM_DIFFERS = "ClaimDiffers"
    CLAIM_SHARED = "ClaimShared"
    CLAIM_UNPREPARED = "ClaimNotPrepared"
    CLAIM_LEFT = "ClaimLeftToScheduler"


@dataclass(frozen=True, slots=True)
class EventMessage:
    """The reason of an Event, and its text for people."""

    reason: EventReason
    text: str
    detail: str = field(default="", compare=False)
    """Continues the text. Others may write it at any time, so it makes no new Event."""


def event_about(pod: PodInfo, message: EventMessage) -> Event:
    """Return the Event about a pod; another detail makes no new one."""
    about = ObjectReference("v1", "Pod", pod.name, pod.uid, pod.namespace)
    text = f"{message.text}{message.detail}"
    return Event(about, message.reason, text, change=message.text)


def waiting(gang: str, why: str) -> EventMessage:
    """Report that a gang waits."""
    return EventMessage(EventReason.WAITING, f"Gang {_printable(gang)} waits: {why}")


def pod_waiting(why: str) -> EventMessage:
    """Report that a pod without a gang waits."""
    return EventMessage(EventReason.POD_WAITING, f"{POD_WAITS}{why}")


def reason_of_member(gang: str, why: str) -> EventMessage:
    """Report on a pod why it waits with its gang; empty: it has none."""
    if not gang:
        return pod_waiting(why)
    return EventMessage(
        EventReason.POD_WAITING, f"Waits for its GPUs with gang {_printable(gang)}: {why}"
    )


def partial(gang: str, allocated: int, needed: int | None, why: str) -> EventMessage:
    """Report that some members of a gang have GPUs, and that the others were refused theirs.

    Args:
        gang: Its name.
        allocated: How many members have GPUs.
        needed: How many members there must be; None: unknown.
        why: Why the others have none.
    """
    count = f"{allocated} of {needed or '?'} members of gang {_printable(gang)} have their GPUs"
    return EventMessage(EventReason.PARTIAL, f"{count}, the others do not: {why}")


def placed(gang: str, plan: GangPlan, *, is_uniform: bool = True) -> EventMessage:
    """Report that all members of a gang are bound that exist when they are planned.

    Args:
        gang: Its name.
        plan: Their nodes and GPUs.
        is_uniform: All members request the same, as they should.
    """
    unlike = "" if is_uniform else "; they do not all ask for the same"
    members, late = _members(gang, len(plan.members), "is", "are"), plan.late
    if late:
        bound = len(plan.members) - late
        members = f"{bound} of {len(plan.members)} members of gang {_printable(gang)} are"
        unlike += "; the GPUs of the launcher are reserved until all workers are ready"
    text = f"{members} on {_nodes(plan.nodes)}{_bandwidth(plan)}{unlike}"
    return EventMessage(EventReason.PLACED, text)


def evicted(gang: str, members: int, others: int, why: str, refusal: str = "") -> EventMessage:
    """Report that members of a plan were evicted, so that they are placed again.

    Args:
        gang: Its name.
        members: How many.
        others: Number of members that stay.
        why: Which of them could not be bound, and to which node.
        refusal: Why the others could not be evicted, so that these go back to their places.
    """
    subject = _members(gang, members, "was", "were")
    if others > 0:
        verb = "was" if members == 1 else "were"
        subject = f"{members} of {members + others} members of gang {_printable(gang)} {verb}"
    aim = f"and are placed again beside the others ({refusal})" if refusal else ""
    text = f"{subject} evicted, {aim or 'to be placed again together'}: {why}"
    return EventMessage(EventReason.EVICTED, text)


def preempted(unit: str, pods: int, total: int, priority: int) -> EventMessage:
    """Report that pods of a unit were evicted for one of a higher priority.

    It names nothing of another namespace.

    Args:
        unit: Name of the unit.
        pods: How many of its pods.
        total: How many it had; an elastic gang may keep some.
        priority: Of the other unit.
    """
    if pods < total:
        verb = "is" if pods == 1 else "are"
        count = f"{pods} of the {total} pods of elastic {_printable(unit)} {verb}"
    else:
        count = "Its only pod is" if pods == 1 else f"All {pods} pods of {_printable(unit)} are"
    text = f"{count} evicted, since a unit of priority {priority} needs their GPUs"
    return EventMessage(EventReason.PREEMPTED, text)


def partly_preempted(unit: str, pods: int, total: int, priority: int, why: str) -> EventMessage:
    """Report that a unit loses a part of its pods for a while, since others may not be evicted.

    Args:
        unit: Name of the unit.
        pods: How many of its pods were evicted.
        total: How many it had.
        priority: Of the unit that needed their GPUs.
        why: Why the others were not evicted. It names nothing of another namespace.
    """
    verb, back = ("was", "goes back to its place") if pods == 1 else ("were", "go back to theirs")
    text = (
        f"{pods} of the {total} pods of {_printable(unit)} {verb} evicted for a unit of priority "
        f"{priority}, and {back}: another one could not be evicted: {why}"
    )
    return EventMessage(EventReason.PREEMPTED, text)


def preempting(unit: str, what: str) -> EventMessage:
    """Report that others are evicted for a unit."""
    return EventMessage(EventReason.PREEMPTING, f"{what} for {_printable(unit)}")


def unhealthy_message(gang: str, gpus: str) -> EventMessage:
    """Report that members of a gang have unhealthy GPUs."""
    return EventMessage(EventReason.UNHEALTHY, f"Gang {_printable(gang)} has {gpus}")


def unaccounted(node: str) -> EventMessage:
    """Report that no pod is placed on a node, since its free GPUs are unknown.

    Every reader of Events in namespace `default` sees it, so it names no pods.
    """
    text = (
        "No pod gets GPUs here until it is known which ones are in use: "
        f"`linkwise inspect {node}` states the reason"
    )
    return EventMessage(EventReason.UNACCOUNTED, text)


def unaccounted_pod(node: str, why: str) -> EventMessage:
    """Report that it is unknown which GPUs of its node a pod uses."""
    text = f"Node {node} takes no more pods with GPUs because of this one: {why}"
    return EventMessage(EventReason.UNACCOUNTED, text)


def machine_refused(why: str) -> EventMessage:
    """Report that no pod is placed on a node, since its machine is not used."""
    return EventMessage(EventReason.MACHINE_REFUSED, f"No pod gets GPUs here: {why}")


def claim_differs(node: str, held: Iterable[int], planned: Iterable[int]) -> EventMessage:
    """Report that a pod has other GPUs by its claim than those that were planned."""
    have, had = (", ".join(map(str, gpus)) for gpus in (held, planned))
    text = (
        f"Its claim holds GPUs {have} of node {node}, and {had} were planned: these are accounted"
    )
    return EventMessage(EventReason.CLAIM_DIFFERS, text)


def claim_shared(claim: str) -> EventMessage:
    """Report that another pod uses the claim of a pod, and so its GPUs."""
    text = f"Another pod uses claim {claim} of this one, and so its GPUs: delete that pod"
    return EventMessage(EventReason.CLAIM_SHARED, text)


def claim_unprepared(node: str, error: str) -> EventMessage:
    """Report that a node has not prepared a pod with a claim for long.

    Args:
        node: Its name.
        error: What its kubelet says about the devices; empty: nothing.
    """
    text = (
        f"Node {node} has not prepared it for more than a minute, so that its containers do not "
        "start"
    )
    detail = (
        f'; its kubelet says: "{error}"'
        if error
        else "; an Event FailedPrepareDynamicResources of the pod has the reason of the driver; "
        "without one, see whether its volumes and the network are ready"
    )
    return EventMessage(EventReason.CLAIM_UNPREPARED, text, detail)


def claim_delegated(why: str) -> EventMessage:
    """Report that kube-scheduler allocates the claims of a pod, not Linkwise.

    Users can write the reason.
    """
    text = f"Linkwise leaves its claims to kube-scheduler: {_printable(why, _REASON_SHOWN)}"
    if SHARED not in why:
        text = f"{text}; GPUs of nodes with the taint {PLACED} are not for such claims"
    return EventMessage(EventReason.CLAIM_LEFT, text)


def claim_fenced() -> EventMessage:
    """Report that kube-scheduler has no GPUs of fenced nodes for the claims of a pod."""
    return EventMessage(EventReason.CLAIM_LEFT, f"Linkwise does not place it: {FENCED}")


def _bandwidth(plan: GangPlan) -> str:
    planned, best, order = recorded_bandwidths(plan)
    if planned.sets_unknown:
        return "; bandwidth not known: NVIDIA's plugin chooses the GPUs"
    if planned.value is None:
        return ""
    text = f": {planned.value:g} GB/s{planned.uncounted}"
    if best.value is not None:
        beside = f" of {best.value:g} possible"
        text += beside if planned.is_comparable(best) else _apart("the best possible", best)
    if order.value is not None:
        beside = f", {order.value:g} in index order"
        text += beside if planned.is_comparable(order) else _apart("index order", order)
    return text


def _apart(baseline: str, bandwidth: Bandwidth) -> str:
    """Name a bandwidth that says nothing beside that of the plan."""
    if bandwidth.nodes is None:
        return ""
    nodes = f"{bandwidth.nodes} node{'s' * (bandwidth.nodes != 1)}"
    return f"; {baseline} spans {nodes} and is not comparable"


def _members(gang: str, count: int, singular: str, plural: str) -> str:
    if count == 1:
        return f"The only member of gang {_printable(gang)} {singular}"
    return f"All {count} members of gang {_printable(gang)} {plural}"


def _printable(text: str, length: int = _GANG_SHOWN) -> str:
    """Return any text, such as a gang's name, without control characters, truncated."""
    return "".join(char if char.isprintable() else "?" for char in text[:length])


def _nodes(nodes: tuple[str, ...]) -> str:
    return ", ".join(nodes) if len(nodes) <= _NODES_SHOWN else f"{len(nodes)} nodes"
