"""The changes of a gang's GPUs in the last hour, read from the differences of the map. Pure."""

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from msgspec import Struct

from linkwise.dashboard.history import Change
from linkwise.views.render.page.rows import NodeRow

CHANGES = 50
"""The number of changes that are returned; the newest ones."""


class ChangeKind(StrEnum):
    """What became of the GPUs of a gang."""

    ALLOCATED = "allocated"
    """It had none before."""
    RELEASED = "released"
    """It has none afterwards."""
    MOVED = "moved"
    GAINED = "gained"
    LOST = "lost"


class OnNode(Struct, frozen=True):
    """What a gang has on one node."""

    node: str
    pods: int
    gpus: tuple[int, ...]
    """Empty where NVIDIA's plugin chooses."""


class GangChange(Struct, frozen=True):
    """A change of the GPUs of a gang."""

    at: float
    """[s since 1970]"""
    kind: ChangeKind
    before: tuple[OnNode, ...]
    """On the nodes that changed."""
    after: tuple[OnNode, ...]


class Past(NamedTuple):
    """The map now, and what led to it."""

    rows: Mapping[str, NodeRow]
    changes: tuple[Change, ...]
    """The oldest first."""


def gang_changes(past: Past, gang: str) -> tuple[GangChange, ...]:
    """Return the newest changes of the GPUs of a gang, the oldest of them first.

    Args:
        past: The map and its changes.
        gang: `namespace/name`.
    """
    found: list[GangChange] = []
    here = {name: has for name, row in past.rows.items() if (has := _on(row, gang))}
    for change in reversed(past.changes):
        then = {name: _on(row, gang) for name, row in change.before.items()}
        changed = sorted(name for name, has in then.items() if has != here.get(name))
        if not changed:
            continue
        had_none = not (here.keys() - changed) and not any(then[name] for name in changed)
        after = tuple(has for name in changed if (has := here.get(name)))
        before = tuple(has for name in changed if (has := then[name]))
        kind = _kind(before, after, had_none=had_none, has_none=not here)
        found.append(GangChange(change.at, kind, before, after))
        if len(found) == CHANGES:
            break
        for name in changed:
            if has := then[name]:
                here[name] = has
            else:
                del here[name]
    return tuple(reversed(found))


def _on(row: NodeRow | None, gang: str) -> OnNode | None:
    """Return what a gang has on a node; None: nothing, or there is no such node."""
    pods = [holder for holder in row.holders if holder.gang == gang] if row else []
    if row is None or not pods:
        return None
    return OnNode(row.name, len(pods), tuple(sorted({gpu for pod in pods for gpu in pod.gpus})))


def _kind(
    before: tuple[OnNode, ...], after: tuple[OnNode, ...], *, had_none: bool, has_none: bool
) -> ChangeKind:
    if had_none:
        return ChangeKind.ALLOCATED
    if has_none:
        return ChangeKind.RELEASED
    pods = sum(each.pods for each in after) - sum(each.pods for each in before)
    if pods == 0:
        return ChangeKind.MOVED
    return ChangeKind.GAINED if pods > 0 else ChangeKind.LOST
