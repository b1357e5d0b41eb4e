"""Evaluate a tree for one device.

`&&` and `||` take their operands in any order: one that decides the result does so although the
other one fails, as in Kubernetes.
"""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from linkwise.cluster.cel.functions import FUNCTIONS
from linkwise.cluster.cel.operators import OPERATORS, Aborted, has_entry, not_boolean, wrong_types
from linkwise.cluster.cel.regex import Regex
from linkwise.cluster.cel.syntax import SyntaxRefused, parse
from linkwise.cluster.cel.tree import Bind, Call, Constant, Member, Name, Node
from linkwise.cluster.cel.values import Failure, Partial, Value

_Scope: TypeAlias = Mapping[str, Value | Failure]
_BY_DOMAIN = (Member(Name("device"), "attributes"), Member(Name("device"), "capacity"))


def evaluate(text: str, fields: Mapping[str, Value]) -> bool | Failure:
    """Return the value of an expression.

    Args:
        text: The expression.
        fields: The fields of `device`.
    """
    tree = parse(text)
    if isinstance(tree, SyntaxRefused):
        return Failure(str(tree))
    try:
        value = _value(tree, {"device": fields})
    except Aborted:
        return wrong_types("in")
    if isinstance(value, bool | Failure):
        return value
    return Failure("it is neither true nor false")


def _value(node: Node, scope: _Scope) -> Value | Failure:
    match node:
        case Constant(value):
            # A regular expression is only an argument, which `_call` passes on.
            return wrong_types("matches") if isinstance(value, Regex) else value
        case Name(name):
            return scope[name]
        case Bind(name, value, body):
            return _value(body, {**scope, name: _value(value, scope)})
        case Member(operand, key):
            return _member(_value(operand, scope), operand, key)
        case Call(function, arguments):
            return _LAZY[function](arguments, scope) if function in _LAZY else _call(node, scope)


def _member(mapping: Value | Failure, operand: Node, key: str) -> Value | Failure:
    if isinstance(mapping, Failure):
        return mapping
    if not isinstance(mapping, Mapping):
        return Failure(f"{key!r} is read of a value without entries")
    if key in mapping:
        return mapping[key]
    if operand in _BY_DOMAIN and not isinstance(mapping, Partial):
        return {}  # Kubernetes has an empty mapping for each domain.
    return Failure(f"the device has no {key!r}")


def _call(call: Call, scope: _Scope) -> Value | Failure:
    values: list[Value | Regex] = []
    for argument in call.arguments:
        if isinstance(argument, Constant):
            values.append(argument.value)
            continue
        value = _value(argument, scope)
        if isinstance(value, Failure):
            return value
        values.append(value)
    if operator := OPERATORS.get(call.function):
        return operator(*values)
    function = FUNCTIONS[call.function].call
    found = function(*values) if function else None
    return wrong_types(call.function.removeprefix(".")) if found is None else found


def _all(terms: Sequence[Node], scope: _Scope) -> Value | Failure:
    return _joined(terms, scope, decisive=False)


def _any(terms: Sequence[Node], scope: _Scope) -> Value | Failure:
    return _joined(terms, scope, decisive=True)


def _joined(terms: Sequence[Node], scope: _Scope, *, decisive: bool) -> Value | Failure:
    failure: Failure | None = None
    for term in terms:
        value = _value(term, scope)
        if value is decisive:
            return decisive
        if not isinstance(value, bool):
            failure = failure or not_boolean(value)
    return not decisive if failure is None else failure


def _chosen(terms: Sequence[Node], scope: _Scope) -> Value | Failure:
    condition, then, otherwise = terms
    value = _value(condition, scope)
    return (
        _value(then if value else otherwise, scope)
        if isinstance(value, bool)
        else (not_boolean(value))
    )


def _has(terms: Sequence[Node], scope: _Scope) -> Value | Failure:
    (member,) = terms
    if not isinstance(member, Member):
        return wrong_types("has")
    if member.operand in _BY_DOMAIN:
        return Failure("has() of a domain is not evaluated: Kubernetes says that each is there")
    mapping = _value(member.operand, scope)
    return mapping if isinstance(mapping, Failure) else has_entry(mapping, member.key)


_LAZY = {"&&": _all, "||": _any, "?:": _chosen, "has": _has}
"""Those that do not evaluate all their arguments."""
