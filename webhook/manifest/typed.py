"""From what people wrote to what Linkwise reads: Kubernetes objects as typed values."""

import re
from typing import TypeVar

from msgspec import Struct, ValidationError, convert

from webhook.manifest.value import Value

T = TypeVar("T", bound=Struct)

_AT = re.compile(r"(.*) - at `\$\.?(.*)`")


def read_as(kind: type[T], plain: object, value: Value) -> T:
    """Return a Kubernetes object as a typed value.

    Args:
        kind: Its type.
        plain: The object, perhaps with what a controller adds.
        value: Where it was written.

    Raises:
        InputError: A field has a type that Kubernetes would refuse; with its line.
    """
    try:
        return convert(plain, kind)
    except ValidationError as error:
        match = _AT.fullmatch(str(error))
        what, words = match.groups() if match else (str(error), "")
        raise value.at(words).error(
            f"{words}: {what[:1].lower()}{what[1:]}; Kubernetes refuses such an object."
        ) from None
