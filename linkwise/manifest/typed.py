"""Convert plain values of manifests into typed Kubernetes objects."""

import re
from typing import Any, TypeVar

from msgspec import Struct, ValidationError, convert

from linkwise.manifest.value import Value, path_of

T = TypeVar("T", bound=Struct)

_AT = re.compile(r"(.*) - at `\$\.?(.*)`")
_WANTED = {
    "Expected `int | null`": "a whole number",
    "Expected `bool | null`": "true or false",
}
"""By type in messages of msgspec: what people write."""
_SOME_KEY = "[...]"
"""Name of the value of a map in messages of msgspec."""


def read_as(kind: type[T], plain: object, value: Value) -> T:
    """Return a Kubernetes object as a typed value.

    Args:
        kind: The type.
        plain: The object, with the fields that a controller adds.
        value: Its place in the file.

    Raises:
        InputError: A field has a type that Kubernetes rejects.
    """
    try:
        return convert(plain, kind)
    except ValidationError as error:
        match = _AT.fullmatch(str(error))
        what, words = match.groups() if match else (str(error), "")
        if words.endswith(_SOME_KEY):
            words = _with_key(words.removesuffix(_SOME_KEY), what, plain)
        if wanted := _WANTED.get(what.partition(", got")[0]):
            raise value.at(words).error(f"{words} must be {wanted}.") from None
        raise value.at(words).error(
            f"{words}: {what[:1].lower()}{what[1:]}; Kubernetes refuses such an object."
        ) from None


def _with_key(words: str, what: str, plain: object) -> str:
    """Return the path of the first value of a map that has the wrong type.

    Of a map in the values of another, the path of that.
    """
    outer, inner, _ = words.partition(_SOME_KEY)
    if inner:
        return outer
    mapping: Any = plain
    for step in path_of(words):
        mapping = mapping[step]
    got = what.rpartition("got ")[2].strip("`")
    wrong = [key for key, one in mapping.items() if _TYPES.get(type(one)) == got]
    return f"{words}[{wrong[0]}]" if wrong else words


_TYPES = {bool: "bool", int: "int", float: "float", str: "str", list: "array", dict: "object"}
