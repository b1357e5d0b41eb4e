"""Convert plain values into pydantic models; errors have line, path and fix."""

import json
from collections.abc import Callable, Hashable, Iterator, Sized
from difflib import get_close_matches
from functools import lru_cache
from types import NoneType
from typing import Annotated, Any, TypeAlias, TypeVar, cast, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails

from linkwise.cluster.objects.selector import label_key_problem, label_value_problem
from linkwise.manifest.place import Path, Place, field
from linkwise.policy.problem import Problem

T = TypeVar("T")
C = TypeVar("C", bound=Sized)
_Type: TypeAlias = Any
"""A type expression, such as `tuple[str, ...]`: Python has no static type for it."""


class Wire(BaseModel):
    """Base of models: lowerCamelCase names, unknown keys are errors, no coercion of values."""

    model_config = ConfigDict(
        defer_build=True,
        alias_generator=to_camel,
        extra="forbid",
        frozen=True,
        populate_by_name=True,
        strict=True,
    )


def _valid(problem: Callable[[str], str | None]) -> AfterValidator:
    def check(text: str) -> str:
        message = problem(text)
        if message:
            raise ValueError(message)
        return text

    return AfterValidator(check)


def _some(value: C) -> C:
    if not value:
        raise ValueError("nothing is listed; add an entry, or remove the key")
    return value


NonEmpty = AfterValidator(_some)
"""For a list or mapping that requires an entry."""
LabelKey: TypeAlias = Annotated[str, _valid(label_key_problem)]
LabelValue: TypeAlias = Annotated[str, _valid(label_value_problem)]
Labels: TypeAlias = dict[LabelKey, LabelValue]
Positive: TypeAlias = Annotated[float, Field(gt=0, allow_inf_nan=False)]

_FIXES = {
    "bool_type": "write true or false, without quotes",
    "string_type": "put it in quotes",
    "int_type": "write a whole number, without quotes",
    "int_from_float": "write a whole number",
    "float_type": "write a number, without quotes",
    "greater_than": "write a larger number",
    "greater_than_equal": "write a larger number",
    "less_than_equal": "write a smaller number",
    "missing": "add it",
    "literal_error": "write one of these words",
    "enum": "write one of these words",
    "tuple_type": "write a list",
    "dict_type": "write a mapping",
    "model_type": "write a mapping",
}

MAX_ENTRIES = 256
"""Maximum entries of a list or mapping, which are compared with each other and with every node."""
_MAX_EXPLAINED = 1000
"""Maximum problems of one value with line and fix. Far fewer are reported (`reported`)."""
_UNEXPLAINED = Problem(1 << 30, "", "more is wrong", "correct it")
"""Placeholder for further problems, which are only counted."""


def read_value(
    kind: type[T], value: object, document: Place, at: Path = ()
) -> tuple[T | None, list[Problem]]:
    """Convert a value to a type; return None and all problems if it is invalid.

    Args:
        kind: A `Wire` model, or a type made of some.
        value: Plain JSON.
        document: Places of the document that contains the value.
        at: The value's path in the document.
    """
    try:
        # Via JSON: in strict mode a list is not accepted as a tuple, but a JSON array is.
        return cast("T", _adapter(cast("Hashable", kind)).validate_json(json.dumps(value))), []
    except ValidationError as error:
        details = error.errors(include_url=False, include_input=False)
        problems = [_problem(kind, detail, document, at) for detail in details[:_MAX_EXPLAINED]]
        return None, problems + [_UNEXPLAINED] * (len(details) - len(problems))


def overlong(value: object, document: Place, at: Path = ()) -> Iterator[Problem]:
    """Yield a problem for each list and mapping with more than `MAX_ENTRIES`, without its entries.

    Reporting each invalid entry would cost some microseconds without benefit.

    Args:
        value: Plain JSON.
        document: Places of the document that contains the value.
        at: The value's path in the document.
    """
    if not isinstance(value, dict | list):
        return
    if len(value) > MAX_ENTRIES:
        message = f"{len(value)} entries are more than the {MAX_ENTRIES} that are read"
        yield Problem(document.find(at).line, field(at), message, "remove some")
        return
    for step, inner in value.items() if isinstance(value, dict) else enumerate(value):
        yield from overlong(inner, document, (*at, step))


@lru_cache(maxsize=32)
def _adapter(kind: _Type) -> TypeAdapter[Any]:
    """Return the adapter of a type; cached, since creating it is slower than using it."""
    return TypeAdapter(kind)


def _problem(kind: _Type, detail: ErrorDetails, document: Place, at: Path) -> Problem:
    path: Path = tuple(step for step in detail["loc"] if step != "[key]")
    message, fix = detail["msg"], _FIXES.get(detail["type"], "")
    if detail["type"] == "extra_forbidden":
        message, fix = _unknown_key(kind, path)
    elif detail["type"] == "value_error":
        message, _, fix = str(detail["ctx"]["error"]).partition("; ")
    elif detail["type"] == "missing":
        message = f"{path[-1]} is missing"
    message = message.replace("Input should be", "must be").replace("should have", "must have")
    line = document.find((*at, *path)).line
    return Problem(line, field((*at, *path)), message, fix or "correct it")


def _unknown_key(kind: _Type, path: Path) -> tuple[str, str]:
    key = str(path[-1])
    known = sorted(_keys_at(kind, path[:-1]))
    close = get_close_matches(key, known, 1, 0.6) or [
        name for name in known if name.lower() == key.lower()
    ]
    fix = f"write {close[0]}" if close else f"known keys here: {', '.join(known)}"
    return f"unknown key {key!r}", fix


def _keys_at(kind: _Type, path: Path) -> Iterator[str]:
    """Yield the known keys of a model at a path."""
    kind = _without_none(kind)
    if path:
        yield from _keys_at(_inner(kind, path[0]), path[1:])
    else:
        yield from (name.alias or key for key, name in kind.model_fields.items())


def _inner(kind: _Type, step: str | int) -> _Type:
    """Return the type of an item of a `tuple[X, ...]` or `dict[str, X]`, or of a model's field."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        fields = kind.model_fields.values()
        return next(field.annotation for field in fields if field.alias == step)
    key_or_item, value_or_dots = get_args(kind)
    return key_or_item if value_or_dots is Ellipsis else value_or_dots


def _without_none(kind: _Type) -> _Type:
    members = [member for member in get_args(kind) if member is not NoneType]
    return members[0] if NoneType in get_args(kind) else kind
