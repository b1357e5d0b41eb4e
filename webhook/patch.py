"""One step of a JSON patch (RFC 6902), with the rule that made it.

Steps are built by hand, never by comparing two copies: that is a thousand times faster, and what
nobody meant to change cannot change.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Literal

import msgspec
from msgspec import UNSET, Raw, Struct

from cluster.pointer import escape

_json = msgspec.json.Encoder()


class Operation(Struct, frozen=True, gc=False):
    """One operation of a JSON patch."""

    op: Literal["add", "remove", "replace"]
    path: str
    """A JSON pointer (RFC 6901) into the pod."""
    value: object = UNSET
    """JSON; unset for `remove`."""
    rule: str = ""
    """Why: what in the protocol or in the policy asks for it. People read it; servers do not."""
    text: Raw | None = None
    """`wire` as JSON, of a step that many pods get."""

    def wire(self) -> dict[str, object]:
        """Return the operation as an API server takes it, without the rule."""
        if self.value is UNSET:
            return {"op": self.op, "path": self.path}
        return {"op": self.op, "path": self.path, "value": self.value}


class _Step(Struct, frozen=True, gc=False):
    """`Operation.wire`, three times as fast to make."""

    op: str
    path: str
    value: object


def add(path: str, value: object, rule: str) -> Operation:
    """Return the step that sets `path`; its parent must be there."""
    return Operation("add", path, value, rule)


def remove(path: str, rule: str) -> Operation:
    """Return the step that removes `path`, which must be there."""
    return Operation("remove", path, rule=rule)


def pre_encoded(step: Operation) -> Operation:
    """Return a step that is encoded already, for those that are made once for many pods."""
    return msgspec.structs.replace(step, text=Raw(_json.encode(step.wire())))


def encode_patch(steps: Sequence[Operation]) -> bytes:
    """Return steps as an API server takes them, as JSON."""
    return _json.encode([step.text or _Step(step.op, step.path, step.value) for step in steps])


@lru_cache(maxsize=1024)
def join_rules(rules: tuple[str, ...]) -> str:
    """Return rules as one text, each of them once. Pods differ, but few in this."""
    return ", ".join(dict.fromkeys(rules))


def add_keys(
    path: str, present: Mapping[str, str] | None, wanted: Mapping[str, tuple[str, str]]
) -> list[Operation]:
    """Return the steps that add keys to a map of strings which may itself be absent.

    Args:
        path: Pointer to the map; its parent must be there.
        present: The map; None when it is absent or null.
        wanted: Key to (value, rule). None of them may be in `present`: they would be overwritten.

    Returns:
        One step a key; one for all of them where the map is made.
    """
    if not wanted:
        return []
    if present is None:
        value = {key: text for key, (text, _) in wanted.items()}
        return [add(path, value, join_rules(tuple([rule for _, rule in wanted.values()])))]
    return [add(f"{path}/{escape(key)}", text, rule) for key, (text, rule) in wanted.items()]


def append(path: str, present: object, value: object, rule: str) -> Operation:
    """Return the step that appends to a list which may itself be absent.

    Args:
        path: Pointer to the list; its parent must be there.
        present: The list; None when it is absent or null.
        value: The new item.
        rule: Why.
    """
    if present is None:
        return Operation("add", path, [value], rule)
    return Operation("add", f"{path}/-", value, rule)


def extend(path: str, present: object, values: Sequence[tuple[object, str]]) -> list[Operation]:
    """Return the steps that append several items.

    Args:
        path: As `append` takes it.
        present: As `append` takes it.
        values: (value, rule) of each new item, in order.

    Returns:
        One step an item; one for all of them where the list is made.
    """
    if present is not None:
        return [Operation("add", f"{path}/-", value, rule) for value, rule in values]
    if not values:
        return []
    rules = join_rules(tuple([rule for _, rule in values]))
    return [Operation("add", path, [value for value, _ in values], rules)]
