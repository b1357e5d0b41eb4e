"""Read strict JSON, and the places of its values."""

import json
import re
from collections.abc import Iterator

from linkwise.manifest.place import MAX_DEPTH, Place, SourceError

_TOKEN = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?+|[][{}]|[^][{}\s,:"]++', re.DOTALL)
"""Every quote begins a token, closed or not, and no character is matched twice: one pass over any
text, even if a part of it is not JSON."""
_HALF_PAIR = re.compile(r"\\u[dD][89a-fA-F]")


def read_json(text: str) -> object:
    """Return the value of a JSON text.

    Stricter than `json`: rejects duplicate keys, NaN and infinities, unpaired surrogates, and
    nesting beyond `MAX_DEPTH`.

    Raises:
        SourceError: The text is not strict JSON.
    """
    not_numbers: list[str] = []
    repeated: list[object] = []

    def members(pairs: list[tuple[str, object]]) -> dict[str, object]:
        value = dict(pairs)
        if len(value) != len(pairs):
            repeated.append(value)
        return value

    try:
        value = json.loads(text, object_pairs_hook=members, parse_constant=not_numbers.append)
    except json.JSONDecodeError as error:
        what = f"{error.msg[:1].lower()}{error.msg[1:]} (column {error.colno})"
        raise SourceError(error.lineno, f"not JSON: {what}") from None
    except ValueError:
        raise SourceError(_longest(text), "not JSON: a number is too long") from None
    except RecursionError:
        value = None
        repeated.append(value)
    # There is an error; a second pass finds its line and raises.
    if repeated or _is_deep(value):
        places(text)
    for line, token in _tokens(text) if not_numbers or _HALF_PAIR.search(text) else ():
        _check_scalar(line, token)
    return value


def places(text: str, first: int = 1) -> Place:
    """Return the places of all values of a JSON text.

    Args:
        text: Text that `json` accepts; only duplicate keys and depth are checked here.
        first: The number of the text's first line.

    Raises:
        SourceError: An object has a duplicate key, or the nesting exceeds `MAX_DEPTH`.

    Cost: one pass, about 1 µs a token; readers of large files call it on demand.
    """
    tree = _Tree()
    for line, token in _tokens(text):
        tree.take(token, first + line - 1)
    return tree.root[0]


class _Tree:
    """Builds places from tokens."""

    def __init__(self) -> None:
        self.root: list[Place] = []
        self.open: list[dict[str, Place] | list[Place]] = [self.root]
        self.key: list[tuple[str, int]] = []
        """The key whose value is next, and its line; empty if none is expected."""

    def take(self, word: str, line: int) -> None:
        """Process the next token: a bracket, a brace, a key or a value."""
        if word in "]}":
            self.open.pop()
        elif word in "[{":
            parts: dict[str, Place] | list[Place] = {} if word == "{" else []
            self._add(Place(line, parts))
            self.open.append(parts)
            if len(self.open) > MAX_DEPTH + 1:
                raise SourceError(line, f"nested deeper than {MAX_DEPTH} levels")
        elif isinstance(self.open[-1], dict) and not self.key:
            self.key.append((json.loads(word), line))
        else:
            self._add(Place(line))

    def _add(self, place: Place) -> None:
        parts = self.open[-1]
        if isinstance(parts, list):
            parts.append(place)
            return
        key, place.line = self.key.pop()
        if key in parts:
            raise repeated_key(place.line, key, parts[key].line)
        parts[key] = place


def repeated_key(line: int, key: str, first: int) -> SourceError:
    """Return the error for a duplicate key of a mapping."""
    hint = "; is the indentation lost?" if key in {"metadata", "spec"} else ""
    return SourceError(line, f"the key {key!r} stands already on line {first}{hint}")


def _is_deep(value: object) -> bool:
    level: list[dict[str, object] | list[object]] = [[value]]
    for _ in range(MAX_DEPTH + 1):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
    return bool(level)


def _tokens(text: str) -> Iterator[tuple[int, str]]:
    line, position = 1, 0
    for match in _TOKEN.finditer(text):
        line += text.count("\n", position, match.start())
        position = match.start()
        yield line, match[0]


def _longest(text: str) -> int:
    """Return the line of the longest token that is not a string, which is a number."""
    words = ((len(word), line) for line, word in _tokens(text) if word[0] != '"')
    return max(words)[1]


def _check_scalar(line: int, token: str) -> None:
    if token in {"NaN", "Infinity", "-Infinity"}:
        raise SourceError(line, f"not JSON: {token} is no number")
    if token.startswith('"'):
        try:
            json.loads(token).encode()
        except UnicodeEncodeError:
            raise SourceError(line, "half of a surrogate pair is no character") from None
