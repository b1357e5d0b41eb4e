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
    GPUS_HEALTHY: ("GPUUnhealthy", "AllHealthy"),
    GPUS_AS_PLANNED: ("ClaimDiffers", "AllAsPlanned"),
    PREPARED: ("ClaimNotPrepared", "AllPrepared"),
}
"""By type of a condition: the reason while it does not hold, and once it holds."""
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

    def condition(kind: str, message: str, *, holds: bool) -> GangCondition:
        status = "True" if holds else "False"
        since = (before or _EMPTY).since(kind, status) or now
        return GangCondition(kind, status, since, phase.value, message)

    is_assembled = phase in _ASSEMBLED_PHASES
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
            condition(PLACED, message, holds=phase is Phase.PLACED),
            # After a change of leader, the waiting time is counted from here.
            condition(ASSEMBLED, "" if is_assembled else message, holds=is_assembled),
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
    if not problem and before.message(kind) is None:
        return status
    holds, reason = ("False", _REASONS[kind][0]) if problem else ("True", _REASONS[kind][1])
    since = before.since(kind, holds) or now
    condition = GangCondition(kind, holds, since, reason, truncated(problem, _REASON_MAX))
    return structs.replace(status, conditions=(*status.conditions, condition))


def _names(nodes: tuple[str, ...]) -> str:
    """Return the names where they are short together, else their number; empty for none."""
    names = ",".join(nodes)
    return names if len(nodes) <= 1 or len(names) <= _NODES_MAX else f"{len(nodes)} nodes"
