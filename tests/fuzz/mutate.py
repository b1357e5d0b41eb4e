"""Mutation that knows structure: JSON, YAML, lines of words, PEM; also one text within another.

All of it follows from the random numbers that are given, so that a run can be repeated.
"""

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import yaml

_PEM = re.compile(r"-----BEGIN ([^-]+)-----([^-]*)-----END [^-]+-----\n?")
_WORD = re.compile(r"\s+|\w+|[^\w\s]")
_ODD: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 63, 64, 65, 2**31, 2**63, 10**70, 0.5, 1e308, -0.0),
    *("", " ", "0", "-1", "1e9", "1.5", "1Gi", "9" * 70, "1e999999999", "x" * 300, "a/b~c", "\0"),
    *("é", "\u2028", "\ufeff", "\U0001d7d8", "٣", "<<", "*a", "&a", "=", "null", "true", "..."),
    *([], {}, [[]], [None], {"": None}, {"a": {}}),
)
_DEEP = (20, 60, 200, 1200)
_MANY = (2, 3, 20, 300)
_DEEPEST = 500


class Mutator:
    """Changes inputs, by what the inputs of a corpus are made of."""

    def __init__(self, corpus: list[bytes], change_bytes: Callable[[bytes, int], bytes]) -> None:
        """Take apart a corpus.

        Args:
            corpus: Inputs from which keys, values and words are taken.
            change_bytes: Mutates bytes, up to a size, without knowing what they mean.
        """
        self._bytes = change_bytes
        self._values: list[tuple[str, Any]] = []
        self._words: list[str] = []
        for data in corpus:
            text = data.decode(errors="replace")
            self._words += dict.fromkeys(_WORD.findall(text))
            self._values += _pairs(_parsed(text))

    def __call__(self, data: bytes, most: int, seed: int) -> bytes:
        """Return a changed input of at most `most` bytes."""
        random = Random(seed)  # noqa: S311 - inputs of tests.
        if random.random() < 0.2:
            return self._bytes(data, most)
        text = data.decode(errors="replace")
        for _ in range(random.choice((1, 1, 2, 4))):
            if len(text) <= most:
                text = self._text(text, random)
        made = text.encode(errors="replace")
        return made if made and len(made) <= most else self._bytes(data, most)

    def _text(self, text: str, random: Random) -> str:
        if "-----BEGIN" in text[:80]:
            return self._pem(text, random)
        value = _parsed(text) if random.random() < 0.8 else None
        if not isinstance(value, dict | list):
            return self._line_of_words(text, random)
        changed = self._tree(value, random)
        as_json = text.lstrip()[:1] in ("{", "[") or random.random() < 0.3
        try:
            return json.dumps(changed) if as_json else yaml.dump(changed, Dumper=yaml.CSafeDumper)
        except (RecursionError, yaml.YAMLError):
            return text

    def _tree(self, value: Any, random: Random) -> Any:
        """Return a tree in which one place has changed."""
        inner = random.random() < 0.85
        if inner and isinstance(value, dict) and value:
            key = random.choice(list(value))
            if random.random() < 0.15:
                return self._keys(value, key, random)
            return {**value, key: self._tree(value[key], random)}
        if inner and isinstance(value, list) and value:
            at = random.randrange(len(value))
            if random.random() < 0.15:
                times = random.choice((0, *_MANY))
                return [*value[:at], *[value[at]] * times, *value[at + 1 :]]
            return [*value[:at], self._tree(value[at], random), *value[at + 1 :]]
        if isinstance(value, str) and random.random() < 0.6:
            return self._text(value, random)
        return self._instead(value, random)

    def _keys(self, value: dict[str, Any], key: str, random: Random) -> dict[str, Any]:
        if random.random() < 0.4:
            return {name: one for name, one in value.items() if name != key}
        if random.random() < 0.2:
            many = random.choice(_MANY)
            return {**value, **{f"{key}{i}": value[key] for i in range(many)}}
        name, one = self._pair(random)
        return {**value, name: one}

    def _instead(self, value: Any, random: Random) -> Any:
        match random.randrange(5):
            case 0:
                made = value
                for _ in range(random.choice(_DEEP)):
                    made = [made] if random.random() < 0.5 else {self._pair(random)[0]: made}
                return made
            case 1:
                return self._pair(random)[1]
            case 2:
                return dict(self._pair(random) for _ in range(random.choice(_MANY)))
            case _:
                return random.choice(_ODD)

    def _pair(self, random: Random) -> tuple[str, Any]:
        if not self._values or random.random() < 0.1:
            return str(random.choice(_ODD)), random.choice(_ODD)
        return random.choice(self._values)

    def _line_of_words(self, text: str, random: Random) -> str:
        split = _WORD.findall(text) if random.random() < 0.7 else text.splitlines(keepends=True)
        if not split:
            return str(random.choice(self._words or _ODD))
        at = random.randrange(len(split))
        end = min(len(split), at + random.choice((1, 1, 3, 10)))
        match random.randrange(4):
            case 0:
                made = [str(random.choice(_ODD))]
            case 1:
                times = min(random.choice((0, *_MANY)), 1 + (1 << 17) // len(text))
                made = split[at:end] * times
            case 2:
                made = random.sample(split[at:end], end - at)
            case _:
                made = [random.choice(self._words)] if self._words else []
        return "".join((*split[:at], *made, *split[end:]))

    def _pem(self, text: str, random: Random) -> str:
        blocks = list(_PEM.finditer(text))
        if not blocks or random.random() < 0.1:
            return self._line_of_words(text, random)
        block = random.choice(blocks)
        try:
            content = b64decode(block[2])
        except ValueError:
            return self._line_of_words(text, random)
        body = b64encode(self._bytes(content, len(content) + 64)).decode()
        made = f"-----BEGIN {block[1]}-----\n{body}\n-----END {block[1]}-----\n"
        return text[: block.start()] + made + text[block.end() :]


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    try:
        # Aliases can stand for more than memory holds.
        if "*" in text or not _is_shallow(text):
            return None
        return yaml.load(text, Loader=yaml.CSafeLoader)
    except (ValueError, TypeError, RecursionError, yaml.YAMLError):
        return None


def _is_shallow(text: str) -> bool:
    """Return whether the composer of PyYAML in C, which has no recursion limit, can read a text."""
    depth = 0
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > _DEEPEST:
            return False
    return True


def _pairs(value: Any) -> Iterator[tuple[str, Any]]:
    match value:
        case dict():
            for key, one in value.items():
                yield str(key), one
                yield from _pairs(one)
        case list():
            for one in value:
                yield from _pairs(one)
        case str() if value[:1] in ("{", "["):
            yield from _pairs(_parsed(value))
