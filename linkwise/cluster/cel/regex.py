"""Match regular expressions as RE2 does, in linear time: a part of its syntax.

Places in a text are the bits of a number, and each part of an expression maps the places where it
may start to those where it may end. So an expression of a tenant costs no more than its length
times that of the text, which Python's `re` does not guarantee.

Supported are characters, `.`, classes, `^`, `$`, alternatives, groups, and `*`, `+`, `?` after one
character. Source: RE2's syntax, https://github.com/google/re2/wiki/Syntax.
"""

import string
from dataclasses import dataclass
from typing import TypeAlias

_DIGITS = frozenset(string.digits)
_SETS = {
    "d": _DIGITS,
    "w": _DIGITS | frozenset(f"{string.ascii_letters}_"),
    "s": frozenset("\t\n\f\r "),
}
_SPECIAL = frozenset("*+?{}()|[]^$\\.")
_DEPTH_MAX = 8
"""Groups within groups."""


class RegexError(ValueError):
    """An expression is outside the part that is supported; the message has its place."""


@dataclass(frozen=True, slots=True)
class _Characters:
    """One character of a set, repeated or not."""

    chosen: frozenset[str]
    negated: bool = False
    repeat: str = ""
    """`*`, `+`, `?`, or once."""

    def ends(self, text: str, starts: int) -> int:
        hits = sum(1 << i for i, char in enumerate(text) if (char in self.chosen) != self.negated)
        once = (starts & hits) << 1
        if self.repeat in {"", "?"}:
            return once | starts if self.repeat else once
        reached = once
        while more := ((reached & hits) << 1) & ~reached:
            reached |= more
        return reached | starts if self.repeat == "*" else reached


@dataclass(frozen=True, slots=True)
class _Anchor:
    """The start of the text, or its end."""

    at_end: bool

    def ends(self, text: str, starts: int) -> int:
        return starts & (1 << len(text) if self.at_end else 1)


@dataclass(frozen=True, slots=True)
class Regex:
    """An expression: alternatives, each a sequence of parts."""

    alternatives: tuple[tuple["_Part", ...], ...]

    def ends(self, text: str, starts: int) -> int:
        """Return the places where a match may end that starts at one of some places."""
        found = 0
        for parts in self.alternatives:
            places = starts
            for part in parts:
                places = part.ends(text, places)
            found |= places
        return found

    def occurs_in(self, text: str) -> bool:
        """Return whether some part of a text matches."""
        return bool(self.ends(text, (2 << len(text)) - 1))


_Part: TypeAlias = _Characters | _Anchor | Regex


def read_regex(pattern: str) -> Regex:
    """Return a regular expression.

    Raises:
        RegexError: It is outside the supported part, or none.
    """
    reader = _Reader(pattern)
    regex = reader.alternatives(0)
    if reader.rest:
        raise reader.error("an unmatched parenthesis")
    return regex


class _Reader:
    """Reads an expression from left to right."""

    def __init__(self, pattern: str) -> None:
        self._pattern, self._place = pattern, 0

    @property
    def rest(self) -> str:
        return self._pattern[self._place :]

    def error(self, what: str) -> RegexError:
        return RegexError(f"{what} at character {self._place + 1} of the regular expression")

    def alternatives(self, depth: int) -> Regex:
        if depth > _DEPTH_MAX:
            raise self.error("a group too deep")
        found: list[tuple[_Part, ...]] = []
        while True:
            found.append(self._sequence(depth))
            if not self._skip("|"):
                return Regex(tuple(found))

    def _sequence(self, depth: int) -> tuple[_Part, ...]:
        parts: list[_Part] = []
        while self._place < len(self._pattern) and self._peek() not in "|)":
            part = self._part(depth)
            repeat = next((sign for sign in "*+?" if self._skip(sign)), "")
            if repeat:
                if not isinstance(part, _Characters):
                    raise self.error("a repeated group or anchor")
                self._skip("?")
                part = _Characters(part.chosen, part.negated, repeat)
            parts.append(part)
        return tuple(parts)

    def _part(self, depth: int) -> _Part:
        char = self._peek()
        if self._skip("("):
            if self._peek() == "?" and not self._skip("?:"):
                raise self.error("a flag or named group")
            group = self.alternatives(depth + 1)
            if not self._skip(")"):
                raise self.error("a group without end")
            return group
        if char in "^$":
            self._place += 1
            return _Anchor(char == "$")
        if self._skip("["):
            return self._class()
        if self._skip("."):
            return _Characters(frozenset("\n"), negated=True)
        return _Characters(self._characters(_SPECIAL))

    def _class(self) -> _Characters:
        negated, chosen = self._skip("^"), frozenset[str]()
        if self._peek() == "]":
            raise self.error("an empty class")
        while not self._skip("]"):
            first = self._characters(frozenset("[]^"))
            if self._peek() == "-" and self._pattern[self._place + 1 : self._place + 2] != "]":
                self._place += 1
                last = self._characters(frozenset("[]^-"))
                if len(first) != 1 or len(last) != 1 or min(first) > min(last):
                    raise self.error("a range")
                first = frozenset(map(chr, range(ord(min(first)), ord(min(last)) + 1)))
            chosen |= first
        return _Characters(chosen, negated)

    def _characters(self, special: frozenset[str]) -> frozenset[str]:
        """Read one character, or an escape, which may stand for several."""
        if self._skip("\\"):
            char = self._peek()
            if char not in string.punctuation and char not in _SETS:
                raise self.error("an escape")
        elif (char := self._peek()) in special or not char.isascii():
            raise self.error(f"{char!r}")
        else:
            self._place += 1
            return frozenset(char)
        self._place += 1
        return _SETS.get(char, frozenset(char))

    def _peek(self) -> str:
        if self._place >= len(self._pattern):
            raise self.error("a missing part")
        return self._pattern[self._place]

    def _skip(self, text: str) -> bool:
        if not self._pattern.startswith(text, self._place):
            return False
        self._place += len(text)
        return True
