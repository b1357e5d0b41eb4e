"""The tree of an expression."""

from dataclasses import dataclass
from typing import TypeAlias

from linkwise.cluster.cel.regex import Regex
from linkwise.cluster.cel.values import Quantity, Version


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal, or the argument of a function in the form in which that uses it."""

    value: str | int | bool | Quantity | Version | Regex


@dataclass(frozen=True, slots=True)
class Name:
    """A variable: `device`, or one of `cel.bind`."""

    name: str


@dataclass(frozen=True, slots=True)
class Member:
    """An entry of a mapping: `operand.key`, or `operand["key"]`."""

    operand: "Node"
    key: str


@dataclass(frozen=True, slots=True)
class Call:
    """An operator, a function or a macro, with its arguments; the receiver is the first."""

    function: str
    arguments: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Bind:
    """`cel.bind`: a name for a value."""

    name: str
    value: "Node"
    body: "Node"


Node: TypeAlias = Constant | Name | Member | Call | Bind
