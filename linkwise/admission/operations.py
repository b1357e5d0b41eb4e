"""Operations of a JSON patch (RFC 6902), each with the rule that requires it.

Operations are built explicitly, not from a diff of two objects: this is a thousand times faster,
and no other field can change.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec
from msgspec import UNSET, Struct

from linkwise.cluster.pointer import escape

_json = msgspec.json.Encoder()


class Operation(Struct, frozen=True, gc=False):
    """One operation of a JSON patch."""

    op: Literal["add", "remove", "replace"]
    path: str
    """A JSON pointer (RFC 6901) into the pod."""
    value: object = UNSET
    """JSON value; unset for `remove`."""
    rule: str = ""
    """The reason: part of the protocol or the policy. For users; it is not sent."""

    def wire(self) -> dict[str, object]:
        """Return the operation as it is sent, without the rule."""
        if self.value is UNSET:
            return {"op": self.op, "path": self.path}
        return {"op": self.op, "path": self.path, "value": self.value}


def add(path: str, value: object, rule: str) -> Operation:
    """Return the operation that sets `path`, whose parent must exist."""
    return Operation("add", path, value, rule)


def remove(path: str, rule: str) -> Operation:
    """Return the operation that removes `path`, which must exist."""
    return Operation("remove", path, rule=rule)


def encode_patch(operations: Sequence[Operation]) -> bytes:
    """Return the JSON patch."""
    return _json.encode([operation.wire() for operation in operations])


def join_rules(rules: Iterable[str]) -> str:
    """Return distinct rules as one text."""
    return ", ".join(dict.fromkeys(rules))


def add_keys(
    path: str, present: Mapping[str, str] | None, wanted: Mapping[str, tuple[str, str]]
) -> list[Operation]:
    """Return the operations that add keys to a map of strings, which may be absent.

    Args:
        path: Pointer to the map; its parent must exist.
        present: The map; None where it is absent or null.
        wanted: Key to (value, rule). No key may be in `present`.

    Returns:
        One operation for each key; a single one where the map is absent.
    """
    if not wanted:
        return []
    if present is None:
        value = {key: text for key, (text, _) in wanted.items()}
        return [add(path, value, join_rules(rule for _, rule in wanted.values()))]
    return [add(f"{path}/{escape(key)}", text, rule) for key, (text, rule) in wanted.items()]


def append(path: str, present: object, value: object, rule: str) -> Operation:
    """Return the operation that appends to a list, which may be absent.

    Args:
        path: Pointer to the list; its parent must exist.
        present: The list; None where it is absent or null.
        value: The new item.
        rule: The reason.
    """
    if present is None:
        return Operation("add", path, [value], rule)
    return Operation("add", f"{path}/-", value, rule)


def extend(path: str, present: object, values: Sequence[tuple[object, str]]) -> list[Operation]:
    """Return the operations that append several items.

    Args:
        path: As in `append`.
        present: As in `append`.
        values: (value, rule) of each new item, in order.

    Returns:
        One operation for each item; a single one where the list is absent.
    """
    if present is not None:
        return [Operation("add", f"{path}/-", value, rule) for value, rule in values]
    if not values:
        return []
    rules = join_rules(rule for _, rule in values)
    return [Operation("add", path, [value for value, _ in values], rules)]
