"""Build the status of a Gang."""

from msgspec import structs

from linkwise.planning.gang.crd import (
    ASSEMBLED,
    GPUS_AS_PLANNED,
    GPUS_HEALTHY,
    PLACED,
    PREPARED,
    GangCondition,
    GangStatus,
    Phase,
    truncated,
)
from linkwise.planning.gang.crd_plan import Held

_REASON_MAX, _NODES_MAX = 4096, 40
_REASONS = {
    GPUS_HEALTHY: ("GPUUnhealthy", "AllHealthy", "all its GPUs are healthy"),
    GPUS_AS_PLANNED: ("ClaimDiffers", "AllAsPlanned", "its pods have the planned GPUs"),
    PREPARED: ("ClaimNotPrepared", "AllPrepared", "the claims of all its pods are prepared"),
}
"""By type of a condition: the reason while it does not hold; reason and message once it does."""
_ALL_PRESENT, _ALL_BOUND = "AllMembersPresent", "AllMembersBound"
_WITHOUT_REASON = {
    Phase.COMMITTING: "not all members are bound to their nodes yet",
    Phase.FINISHED: "its members have ended",
}
"""By phase: the message of a condition that does not hold, if nobody has a reason."""
_NOTHING, _EMPTY = Held(), GangStatus()
_ASSEMBLED_PHASES = frozenset({Phase.WAITING, Phase.COMMITTING, Phase.PLACED})


def status_of(
    phase: Phase,
    *,
    members: tuple[int, int | None],
    held: Held = _NOTHING,
    reason: str = "",
    before: GangStatus | None = None,
    now: str,
) -> GangStatus:
    """Return a status; equal to `before` where nothing changed.

    Args:
        phase: Progress of the gang.
        members: How many are present while some wait, else bound; and how many it needs, or None.
        held: Their GPUs.
        reason: Why it is not placed, for users.
        before: The last status.
        now: RFC 3339.
    """
    message = truncated(reason, _REASON_MAX)
    why_not = message or _WITHOUT_REASON.get(phase, "")

    def condition(kind: str, code: str, text: str, *, holds: bool) -> GangCondition:
        status = "True" if holds else "False"
        since = (before or _EMPTY).since(kind, status) or now
        reason, message = (code, text) if holds else (phase.value, why_not)
        return GangCondition(kind, status, since, reason, message)

    bound = f"all {members[0]} members are bound to their nodes" + (message and f"; {message}")
    present = "all members are there"
    return GangStatus(
        phase=phase,
        members=f"{members[0]}/{members[1] or '?'}",
        nodes=_names(tuple(node.node for node in held.nodes)),
        gpus=sum(len(node.gpus) for node in held.nodes),
        held=held.nodes,
        bandwidth=held.bandwidth,
        reserved=held.reserved,
        nominated_nodes=held.nominated,
        reason=message,
        conditions=(
            condition(PLACED, _ALL_BOUND, bound, holds=phase is Phase.PLACED),
            # After a change of leader, the waiting time is counted from here.
            condition(ASSEMBLED, _ALL_PRESENT, present, holds=phase in _ASSEMBLED_PHASES),
        ),
    )


def with_problem(
    status: GangStatus, kind: str, problem: str, *, before: GangStatus, now: str
) -> GangStatus:
    """Return a status with a condition about its GPUs or pods, once that did not hold.

    Args:
        status: The status without it.
        kind: The type of the condition, which has a reason for each state in `_REASONS`.
        problem: Why it does not hold, for users; empty where it does.
        before: The last status.
        now: RFC 3339.
    """
    if not problem and before.problem(kind) is None:
        return status
    wrong, right, message = _REASONS[kind]
    holds, reason = ("False", wrong) if problem else ("True", right)
    since = before.since(kind, holds) or now
    text = truncated(problem or message, _REASON_MAX)
    condition = GangCondition(kind, holds, since, reason, text)
    return structs.replace(status, conditions=(*status.conditions, condition))


def _names(nodes: tuple[str, ...]) -> str:
    """Return the names where they are short together, else their number; empty for none."""
    names = ",".join(nodes)
    return names if len(nodes) <= 1 or len(names) <= _NODES_MAX else f"{len(nodes)} nodes"
