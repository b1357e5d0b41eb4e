"""Read YAML and JSON texts as plain values with line numbers."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from json import JSONDecodeError, JSONDecoder
from typing import overload

from linkwise.manifest.json_text import places, read_json
from linkwise.manifest.place import Path, Place, SourceError
from linkwise.manifest.yaml_text import read_yaml


@dataclass(frozen=True)
class Document:
    """One document of a stream."""

    value: object
    """Plain JSON: dict, list, str, int, float, bool. Never None: empty documents are left out."""
    find_place: Callable[[], Place]
    """Finds all lines; called at the first request for one."""
    start: int | None = None
    """The first line, if known without `find_place`."""

    @cached_property
    def place(self) -> Place:
        """The places of the document and of all values in it."""
        return self.find_place()

    @property
    def line(self) -> int:
        """The first line of the document, counted from 1."""
        return self.place.line if self.start is None else self.start

    def line_of(self, path: Path) -> int:
        """Return the line of a path, or of its nearest parent that was written."""
        return self.place.find(path).line


@dataclass(frozen=True, slots=True)
class Embedded:
    """Line numbers of a text that is itself a value of a document."""

    first: int = 1
    """The outer line of the text's first line."""
    literal: bool = True
    """The text is a literal block (`|`), whose lines are lines of the outer text; else one line."""

    def outer(self, line: int) -> int:
        """Return the outer line of a line of the text."""
        return self.first + line - 1 if self.literal else self.first


_SPACE = re.compile(r"\s*")
WHOLE = Embedded()
"""A text that is not embedded."""


def read_documents(text: str) -> list[Document]:
    """Return the documents of a YAML stream, or the one of a JSON text.

    A value is what kubectl reads: YAML 1.1 booleans and numbers, dates as text, keys as text.

    Raises:
        SourceError: The text is neither YAML nor JSON; the message has the line.

    Cost: JSON as fast as `json`, its lines on request; YAML about 5 µs a value.
    """
    text = text.removeprefix("\ufeff")
    if text.lstrip()[:1] in {"{", "["}:
        try:
            value = read_json(text)
        except SourceError:
            # YAML flow syntax, or a mistake, which the YAML reader reports.
            pass
        else:
            return [Document(value, partial(places, text))]
    return [Document(value, place.find) for value, place in read_yaml(text)]


def read_json_stream(text: str) -> list[Document]:
    """Return the documents of concatenated JSON texts; empty if they are not JSON.

    Raises:
        SourceError: One of them is JSON that `read_json` rejects.

    Cost: linear in the text.
    """
    documents: list[Document] = []
    # This decoder only finds the end of each text; `read_json` reads the values.
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
    """Return the position of the next character that is not whitespace."""
    match = _SPACE.match(text, start)
    return match.end() if match else start


@overload
def without_nulls(value: dict[str, object]) -> dict[str, object]: ...
@overload
def without_nulls(value: object) -> object: ...
def without_nulls(value: object) -> object:
    """Remove keys without a value, as the API server does."""
    if isinstance(value, dict):
        return {key: without_nulls(inner) for key, inner in value.items() if inner is not None}
    return [without_nulls(inner) for inner in value] if isinstance(value, list) else value


def embedded(document: Document, path: Path) -> Embedded:
    """Return the line numbers of the text at a path, for errors inside that text."""
    place = document.place.find(path)
    if place.literal is None:
        return Embedded(place.line, literal=False)
    return Embedded(place.literal, literal=True)
