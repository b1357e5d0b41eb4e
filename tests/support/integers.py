"""Every integer of a decoded object: found in its type, so that a new field is among them."""

from collections.abc import Iterator
from typing import Any, TypeAlias

from msgspec import inspect

from linkwise.cluster.keys import GPU_WHOLE

VALUES = ((1 << 63) - 1, 10**12, 0, -1, -(1 << 63))
"""The largest that an API server stores, and those at which arithmetic goes wrong."""
_DEEPEST = 16
Place: TypeAlias = tuple[str | int | None, ...]


def integers(shape: Any) -> Iterator[Place]:
    """Yield the place of each integer of a type: names of fields, None for a key, indices."""
    yield from _integers(inspect.type_info(shape), ())


def _integers(kind: inspect.Type, place: Place) -> Iterator[Place]:
    if len(place) > _DEEPEST:
        return
    match kind:
        case inspect.IntType():
            yield place
        case inspect.Metadata(type=inner):
            yield from _integers(inner, place)
        case inspect.UnionType(types=types):
            for each in types:
                yield from _integers(each, place)
        case inspect.StructType(fields=fields):
            for field in fields:
                yield from _integers(field.type, (*place, field.encode_name))
        case inspect.DictType(value_type=value):
            yield from _integers(value, (*place, None))
        case (
            inspect.ListType(item_type=item)
            | inspect.VarTupleType(item_type=item)
            | inspect.CollectionType(item_type=item)
        ):
            yield from _integers(item, (*place, 0))


def with_number(whole: Any, place: Place, number: int) -> Any:
    """Return JSON with a number at a place; what lacks on the way there is added, plainly."""
    if not place:
        return number
    step, rest = place[0], place[1:]
    if isinstance(step, int):
        first, *others = whole if isinstance(whole, list) and whole else [{}]
        return [with_number(first, rest, number), *others]
    before = whole if isinstance(whole, dict) else {}
    # Under any key: under each that is there, else under that of GPUs.
    chosen = (list(before) or [GPU_WHOLE]) if step is None else [step]
    return {**before, **{key: with_number(before.get(key), rest, number) for key in chosen}}
