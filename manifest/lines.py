"""YAML and JSON texts as plain values, with the line of everything in them."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from json import JSONDecodeError, JSONDecoder
from typing import overload

from manifest.json_text import places, read_json
from manifest.place import Path, Place, SourceError
from manifest.yaml_text import read_yaml


@dataclass(frozen=True)
class Document:
    """One document of a stream."""

    value: object
    """Plain JSON: dict, list, str, int, float, bool. Never None: empty documents are left out."""
    find_place: Callable[[], Place]
    """Tells where everything stands; called when a line is first asked for."""
    start: int | None = None
    """The line where it starts, if known without looking."""

    @cached_property
    def place(self) -> Place:
        """Where the document and everything in it stands."""
        return self.find_place()

    @property
    def line(self) -> int:
        """The line where the document starts, counted from 1."""
        return self.place.line if self.start is None else self.start

    def line_of(self, path: Path) -> int:
        """Return the line of a path, or of its nearest parent that was written."""
        return self.place.find(path).line


@dataclass(frozen=True, slots=True)
class Embedded:
    """Where the lines of a text stand that is itself a value of a document."""

    first: int = 1
    """The outer line of the text's first line."""
    literal: bool = True
    """The text's lines are lines of the outer text (a literal block, `|`); else all are one."""

    def outer(self, line: int) -> int:
        """Return the outer line of a line of the text."""
        return self.first + line - 1 if self.literal else self.first


_SPACE = re.compile(r"\s*")
WHOLE = Embedded()
"""A text that stands in no other."""


def read_documents(text: str) -> list[Document]:
    """Return the documents of a YAML stream, or the one of a JSON text.

    A value is what kubectl reads: YAML 1.1 booleans and numbers, dates as text, keys as text.

    Raises:
        SourceError: The text is neither; one sentence with the line.

    Cost: JSON as fast as `json`, its lines only when asked for; YAML about 5 µs a value.
    """
    text = text.removeprefix("\ufeff")
    if text.lstrip()[:1] in {"{", "["}:
        try:
            value = read_json(text)
        except SourceError:
            # YAML in braces, or a mistake, which is told as one in YAML.
            pass
        else:
            return [Document(value, partial(places, text))]
    return [Document(value, place.find) for value, place in read_yaml(text)]


def read_json_stream(text: str) -> list[Document]:
    """Return the documents of JSON texts that follow each other; none where they are no JSON.

    Raises:
        SourceError: One of them is JSON, but not such as `read_json` takes.

    Cost: linear in the text.
    """
    documents: list[Document] = []
    # It finds where each text ends; `read_json` reads the numbers.
    decoder, line, position = JSONDecoder(parse_int=str, parse_float=str), 1, 0
    start = _next(text, 0)
    while start < len(text):
        try:
            _, end = decoder.raw_decode(text, start)
        except (JSONDecodeError, RecursionError):
            return []
        line, position = line + text.count("\n", position, start), start
        part = text[start:end]
        try:
            value = read_json(part)
        except SourceError as error:
            raise SourceError(line + error.line - 1, error.message) from None
        documents.append(Document(value, partial(places, part, line)))
        start = _next(text, end)
    return documents


def _next(text: str, start: int) -> int:
    """Return where the next character stands that is no space."""
    match = _SPACE.match(text, start)
    return match.end() if match else start


@overload
def without_nulls(value: dict[str, object]) -> dict[str, object]: ...
@overload
def without_nulls(value: object) -> object: ...
def without_nulls(value: object) -> object:
    """Return a value as the API server keeps it: a key without a value was never written."""
    if isinstance(value, dict):
        return {key: without_nulls(inner) for key, inner in value.items() if inner is not None}
    return [without_nulls(inner) for inner in value] if isinstance(value, list) else value


def embedded(document: Document, path: Path) -> Embedded:
    """Return where the lines of the text at a path stand, for the lines of its own problems."""
    place = document.place.find(path)
    if place.literal is None:
        return Embedded(place.line, literal=False)
    return Embedded(place.literal, literal=True)
