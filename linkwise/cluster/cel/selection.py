"""Evaluate selectors on devices; those that are equal in what selectors read are evaluated once."""

from collections.abc import Iterator
from functools import lru_cache

from linkwise.cluster.cel.evaluation import evaluate
from linkwise.cluster.cel.syntax import SyntaxRefused, parse
from linkwise.cluster.cel.tree import Bind, Call, Member, Node
from linkwise.cluster.cel.values import DeviceFacts, Failure, variables


def selects(expressions: tuple[str, ...], device: DeviceFacts) -> bool | Failure:
    """Return whether a device satisfies all of some expressions.

    They are evaluated one after another, up to the first that it does not satisfy.
    """
    read = _ids_read(expressions)

    def matters(name: str, value: object) -> bool:
        return value is None or read is None or name.rpartition("/")[2] in read

    attributes = tuple(
        (n, type(value), value) for n, value in device.attributes if matters(n, value)
    )
    capacity = tuple(pair for pair in device.capacity if matters(*pair))
    return _selects(expressions, device.driver, attributes, capacity, device.is_partial)


@lru_cache(maxsize=4096)
def _selects(
    expressions: tuple[str, ...],
    driver: str,
    attributes: tuple[tuple[str, type, object], ...],
    capacity: tuple[tuple[str, object], ...],
    is_partial: bool,
) -> bool | Failure:
    # The types are in the key, since True and 1 are equal.
    known = tuple((name, value) for name, _, value in attributes)
    fields = variables(DeviceFacts(driver, known, capacity, is_partial))  # type: ignore[arg-type]
    if isinstance(fields, Failure):
        return fields
    for text in expressions:
        result = evaluate(text, fields)
        if result is not True:
            return result
    return True


@lru_cache(maxsize=1024)
def _ids_read(expressions: tuple[str, ...]) -> frozenset[str] | None:
    """Return all names of attributes, without domain, that expressions may read; None: any."""
    found: set[str] = set()
    for text in expressions:
        tree = parse(text)
        for node in () if isinstance(tree, SyntaxRefused) else _nodes(tree):
            match node:
                case Member(_, key):
                    found.add(key)
                case Call("in", (_, container)) if not _is_list(container):
                    return None
    return frozenset(found)


def attributes_read(expressions: tuple[str, ...]) -> frozenset[str]:
    """Return the names of attributes, without domain, that expressions certainly read."""
    found: set[str] = set()
    for text in expressions:
        tree = parse(text)
        for node in () if isinstance(tree, SyntaxRefused) else _nodes(tree):
            match node:
                case Member(Member(Member(_, "attributes"), _), key):
                    found.add(key)
                case _:
                    pass
    return frozenset(found)


def _is_list(node: Node) -> bool:
    return isinstance(node, Call) and node.function == "list"


def _nodes(node: Node) -> Iterator[Node]:
    yield node
    match node:
        case Member(operand):
            yield from _nodes(operand)
        case Bind(_, value, body):
            yield from _nodes(value)
            yield from _nodes(body)
        case Call(_, arguments):
            for argument in arguments:
                yield from _nodes(argument)
        case _:
            pass
