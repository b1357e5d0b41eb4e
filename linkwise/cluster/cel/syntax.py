"""Parse a selector of devices into a tree; what is not evaluated is refused, with its place.

Source: the CEL specification, https://github.com/google/cel-spec/blob/master/doc/langdef.md.
"""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from linkwise.cluster.cel.functions import FUNCTIONS
from linkwise.cluster.cel.tree import Bind, Call, Constant, Member, Name, Node
from linkwise.cluster.finding import quoted

TEXT_MAX = 2048
"""Longest expression that is read [characters]; Kubernetes accepts five times as much."""
NODES_MAX = 256
"""Nodes of a tree."""
_DEPTH_MAX = 24
"""Operators, parentheses and arguments within one another."""
_DEVICE = "device"
_FIELDS = frozenset({"driver", "attributes", "capacity"})
"""Fields of `device`. Those that a later Kubernetes adds are not evaluated."""
_RESERVED = frozenset({"in", "true", "false", "null"})
_RELATIONS = frozenset({"==", "!=", "<", "<=", ">", ">=", "in"})
_TOKEN = re.compile(
    r"(?P<space>[ \t\r\n\f]+|//[^\n]*)"
    r"|(?P<text>[rR]?(?:\"(?:[^\"\\\n\r]|\\.)*\"|'(?:[^'\\\n\r]|\\.)*'))"
    r"|(?P<number>(?:0|[1-9][0-9]{0,17})(?![0-9.a-zA-Z_]))"
    r"|(?P<name>[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<sign>==|!=|<=|>=|&&|\|\||[-<>!?:.,()\[\]])"
)
_ESCAPE = re.compile(r"\\(.)")
_ESCAPED = {"n": "\n", "t": "\t", "\\": "\\", "'": "'", '"': '"', "`": "`", "?": "?"}


class SyntaxRefused(ValueError):  # noqa: N818 - it may be valid CEL.
    """An expression is not evaluated; the message says why and where, for users."""


class _Token(NamedTuple):
    kind: str
    text: str
    place: int


@lru_cache(maxsize=1024)
def parse(text: str) -> Node | SyntaxRefused:
    """Return the tree of an expression, or why it is not evaluated.

    Cost: linear in its length, which is bounded.
    """
    if len(text) > TEXT_MAX:
        return SyntaxRefused(f"it has more than {TEXT_MAX} characters")
    try:
        parser = _Parser(list(_tokens(text)))
        tree = parser.expression(0)
        parser.expect("")
    except SyntaxRefused as refused:
        return refused
    return tree


def _tokens(text: str) -> Iterator[_Token]:
    place = 0
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None or text.startswith(("'''", '"""'), place):
            raise SyntaxRefused(f"{quoted(text[place : place + 20])} is not evaluated")
        if match.lastgroup != "space":
            yield _Token(match.lastgroup or "", match[0], place)
        place = match.end()
    yield _Token("end", "", len(text))


class _Parser:
    """Reads tokens from left to right, one method for each level of precedence."""

    def __init__(self, tokens: Sequence[_Token]) -> None:
        self._tokens, self._next, self._nodes = tokens, 0, 0
        self._bound: list[str] = []

    def expression(self, depth: int) -> Node:
        """Read an expression, with `?:`, the operator of the lowest precedence."""
        if depth > _DEPTH_MAX:
            raise self._refused("is nested too deep")
        condition = self._joined("||", depth)
        if not self._skip("?"):
            return condition
        then = self._joined("||", depth)
        self.expect(":")
        return self._call("?:", condition, then, self.expression(depth + 1))

    def expect(self, text: str) -> None:
        """Pass a token; "" is the end."""
        if self._token.text != text:
            raise self._refused("is not expected")
        self._next += bool(text)

    def _joined(self, operator: str, depth: int) -> Node:
        """Read terms that are joined by `||` or `&&`."""
        terms = [self._joined("&&", depth) if operator == "||" else self._relation(depth)]
        while self._skip(operator):
            terms.append(self._joined("&&", depth) if operator == "||" else self._relation(depth))
        return terms[0] if len(terms) == 1 else self._call(operator, *terms)

    def _relation(self, depth: int) -> Node:
        left = self._unary(depth)
        if self._token.text not in _RELATIONS:
            return left
        operator = self._take().text
        right = self._unary(depth)
        if operator == "in" and isinstance(right, Name):
            raise self._refused("follows a name in place of a list or mapping")
        if self._token.text in _RELATIONS:
            raise self._refused("compares a comparison")
        return self._call(operator, left, right)

    def _unary(self, depth: int) -> Node:
        if self._skip("!"):
            if depth > _DEPTH_MAX:
                raise self._refused("is nested too deep")
            return self._call("!", self._unary(depth + 1))
        if self._skip("-"):
            if self._token.kind != "number":
                raise self._refused("follows a minus, and is no number")
            return self._node(Constant(-int(self._take().text)))
        return self._members(self._primary(depth), depth)

    def _primary(self, depth: int) -> Node:
        token = self._take()
        if token.kind == "text":
            return self._node(Constant(self._string(token)))
        if token.kind == "number":
            return self._node(Constant(int(token.text)))
        if token.text == "(":
            inner = self.expression(depth + 1)
            self.expect(")")
            return inner
        if token.text == "[":
            return self._call("list", *self._items("]", depth))
        if token.text in {"true", "false"}:
            return self._node(Constant(token.text == "true"))
        if token.kind == "name" and token.text not in _RESERVED:
            return self._named(token, depth)
        raise self._refused("is not evaluated", token)

    def _named(self, token: _Token, depth: int) -> Node:
        name = token.text
        if name == "cel" and self._skip("."):
            return self._bind(depth)
        if name == "has" and self._skip("("):
            arguments = self._items(")", depth)
            if len(arguments) != 1 or not isinstance(arguments[0], Member):
                raise self._refused("asks for no entry of a mapping", token)
            return self._call("has", *arguments)
        if self._token.text == "(":
            return self._function(name, (), token, depth)
        if name != _DEVICE and name not in self._bound:
            raise self._refused("is not evaluated", token)
        return self._node(Name(name))

    def _bind(self, depth: int) -> Node:
        if self._take().text != "bind" or not self._skip("("):
            raise self._refused("is not evaluated")
        name = self._take()
        if name.kind != "name" or name.text in _RESERVED or name.text in {_DEVICE, *self._bound}:
            raise self._refused("is no new name", name)
        self.expect(",")
        value = self.expression(depth + 1)
        self.expect(",")
        self._bound.append(name.text)
        body = self.expression(depth + 1)
        self._bound.pop()
        self.expect(")")
        return self._node(Bind(name.text, value, body))

    def _members(self, node: Node, depth: int) -> Node:
        """Read what follows a value: its entries, and calls of its methods."""
        while True:
            token = self._token
            if self._skip("."):
                name = self._take()
                if name.kind != "name":
                    raise self._refused("is not evaluated", name)
                if self._token.text == "(":
                    node = self._function(f".{name.text}", (node,), name, depth)
                    continue
                key = name.text
            elif self._skip("["):
                found = self.expression(depth + 1)
                if not (isinstance(found, Constant) and isinstance(found.value, str)):
                    raise self._refused("is an index that is no text", token)
                self.expect("]")
                key = found.value
            elif node == Name(_DEVICE):
                raise self._refused("follows device, of which no field is read", token)
            else:
                return node
            if node == Name(_DEVICE) and key not in _FIELDS:
                raise self._refused(f"reads device.{key}, which is not evaluated", token)
            node = self._node(Member(node, key))

    def _items(self, end: str, depth: int) -> tuple[Node, ...]:
        items: list[Node] = []
        while not self._skip(end):
            if items:
                self.expect(",")
            items.append(self.expression(depth + 1))
        return tuple(items)

    def _function(self, name: str, receiver: tuple[Node, ...], token: _Token, depth: int) -> Node:
        """Read a call; constant arguments are read now, so that an error has its place."""
        function = FUNCTIONS.get(name)
        if function is None:
            raise self._refused("is a function that is not evaluated", token)
        self.expect("(")
        arguments = (*receiver, *self._items(")", depth))
        if len(arguments) != function.arguments:
            raise self._refused("has another number of arguments", token)
        if function.reads is None:
            return self._call(name, *arguments)
        last = arguments[-1]
        if not (isinstance(last, Constant) and isinstance(last.value, str)):
            raise self._refused("has an argument that is no constant text", token)
        read = function.reads(last.value)
        if isinstance(read, str):
            raise self._refused(f"has an argument that is not evaluated: {read}", token)
        if len(arguments) == 1:
            return Constant(read)
        return self._call(name, *arguments[:-1], Constant(read))

    def _string(self, token: _Token) -> str:
        text = token.text
        if text[0] in "rR":
            return text[2:-1]
        if unknown := [one for one in _ESCAPE.findall(text[1:-1]) if one not in _ESCAPED]:
            raise self._refused(f"has the escape \\{unknown[0]}, which is not evaluated", token)
        return _ESCAPE.sub(lambda match: _ESCAPED[match[1]], text[1:-1])

    def _call(self, function: str, *arguments: Node) -> Node:
        return self._node(Call(function, arguments))

    def _node(self, node: Node) -> Node:
        self._nodes += 1
        if self._nodes > NODES_MAX:
            raise SyntaxRefused(f"it has more than {NODES_MAX} parts")
        return node

    @property
    def _token(self) -> _Token:
        return self._tokens[self._next]

    def _take(self) -> _Token:
        token = self._token
        self._next += token.kind != "end"
        return token

    def _skip(self, sign: str) -> bool:
        if self._token.text != sign:
            return False
        self._next += 1
        return True

    def _refused(self, why: str, token: _Token | None = None) -> SyntaxRefused:
        token = token or self._token
        what = quoted(token.text[:40]) if token.text else "the end"
        return SyntaxRefused(f"{what} at character {token.place + 1} {why}")
