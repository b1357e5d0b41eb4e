"""Values of expressions, and the device of which an expression reads them."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple, TypeAlias

from msgspec import Struct

_NUMBER = "(0|[1-9][0-9]{0,8})"
_VERSION = re.compile(rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(?:\+([0-9A-Za-z.-]{{1,64}}))?")
"""A semantic version without a pre-release, whose order has rules of its own."""


class Version(NamedTuple):
    """A semantic version."""

    major: int
    minor: int
    patch: int
    build: str = ""

    @property
    def precedence(self) -> tuple[int, int, int]:
        """What expressions compare: versions that differ in their build alone are equal."""
        return self.major, self.minor, self.patch

    def __str__(self) -> str:
        """Return the version as it was read."""
        text = ".".join(map(str, self.precedence))
        return f"{text}+{self.build}" if self.build else text


@dataclass(frozen=True, slots=True, order=True)
class Quantity:
    """An amount, such as a memory size."""

    amount: Fraction


@dataclass(frozen=True, slots=True)
class Failure:
    """An expression has no certain value for a device: Kubernetes reports an error, or may do so.

    Such as for an attribute that the device does not have.
    """

    reason: str


Scalar: TypeAlias = str | int | bool | Version
"""The value of an attribute."""
Value: TypeAlias = Scalar | Quantity | Mapping[str, "Value"] | tuple["Value", ...]


class Partial(dict[str, Value]):
    """A mapping that may have other entries."""


class DeviceFacts(Struct, frozen=True, gc=False):
    """What expressions read of a device."""

    driver: str
    attributes: tuple[tuple[str, Scalar | None], ...] = ()
    """By name, with a domain unless it is that of the driver; None: of a kind that is not read."""
    capacity: tuple[tuple[str, Fraction | None], ...] = ()
    """The same for capacities; None: it is no amount."""
    is_partial: bool = False
    """It may have others, too."""


def read_version(text: str) -> Version | None:
    """Return a version; None if it is none, or has a pre-release."""
    match = _VERSION.fullmatch(text)
    if match is None:
        return None
    major, minor, patch, build = match.groups()
    return Version(int(major), int(minor), int(patch), build or "")


def variables(device: DeviceFacts) -> Mapping[str, Value] | Failure:
    """Return the fields of the variable `device`; a failure if it has a value that is not read."""
    for name, value in (*device.attributes, *device.capacity):
        if value is None:
            return Failure(f"the value of {name} is of a kind that is not read")
    amounts = ((name, Quantity(amount)) for name, amount in device.capacity if amount is not None)
    attributes = ((name, value) for name, value in device.attributes if value is not None)
    return {
        "driver": device.driver,
        "attributes": _by_domain(device, attributes),
        "capacity": _by_domain(device, amounts),
    }


def _by_domain(device: DeviceFacts, named: Iterable[tuple[str, Value]]) -> Mapping[str, Value]:
    by_domain: dict[str, dict[str, Value]] = {}
    for name, value in named:
        domain, slash, rest = name.partition("/")
        entries = by_domain.setdefault(domain if slash else device.driver, {})
        entries[rest if slash else name] = value
    if device.is_partial:
        return Partial({domain: Partial(entries) for domain, entries in by_domain.items()})
    return dict(by_domain)
