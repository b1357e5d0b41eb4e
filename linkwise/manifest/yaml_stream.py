"""Read large YAML in parts: the documents of a stream, and the items of a List one by one.

Parts are built from parser events without the places of their values: 20 MB in 5.3 s of CPU and
1 MiB beside the text, of which `yaml_text` takes 10.5 s and 344 MiB. Texts with anchors, and parts
with tags or mistakes, are read by `yaml_text`, which reads all of YAML.
"""

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeAlias

import yaml

from linkwise.manifest.json_text import repeated_key
from linkwise.manifest.lines import Document
from linkwise.manifest.place import MAX_DEPTH, Place, SourceError
from linkwise.manifest.yaml_scalar import plain_value
from linkwise.manifest.yaml_text import collection_as_key, read_yaml, source_error

_Event: TypeAlias = Any
"""Parser events are untyped."""
_NextEvent: TypeAlias = Callable[[], _Event]
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_UNUSUAL = re.compile(r"(?:^|[\s\[{,:-])[&*!][^\s&]|^%", re.MULTILINE)
"""A possible anchor, alias or tag, which parts cannot have; or a directive."""


def read_parts(text: str) -> Iterator[Document]:
    """Yield the documents of a YAML text; for a List first its items, then the rest of it.

    Args:
        text: YAML. At most one part is in memory as values at a time.

    Raises:
        SourceError: As `yaml_text.read_yaml`, after the parts before it were yielded.

    Cost: about 4 µs a value; lines are found at the first request for one.
    """
    # The parser does not count it in its marks.
    text = text.removeprefix("\ufeff")
    if _UNUSUAL.search(text):
        yield from (Document(value, place.find) for value, place in read_yaml(text))
        return
    try:
        loader = _LOADER(_Chunks(text))
        try:
            yield from _documents(text, loader.get_event)
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        raise source_error(error, text) from None


class _Chunks:
    """A stream of a text, of which the parser then has no second copy."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def read(self, size: int) -> str:
        """Return the next characters; none at the end."""
        start, self._at = self._at, self._at + size
        return self._text[start : self._at]


def _documents(text: str, next_event: _NextEvent) -> Iterator[Document]:
    start, line = 0, 1
    while (kind := type(event := next_event())) is not yaml.StreamEndEvent:
        if kind is yaml.DocumentStartEvent:
            if event.explicit:
                start, line = event.start_mark.index, event.start_mark.line + 1
        elif kind is yaml.DocumentEndEvent:
            start, line = event.end_mark.index, event.end_mark.line + 1
        elif kind is yaml.MappingStartEvent and not event.tag:
            yield from _object(text, next_event, start, line)
        elif kind is not yaml.StreamStartEvent:
            value, is_plain, end = _value(next_event, event)
            yield from _document(value, is_plain, text[start : end.index], line)


def _object(text: str, next_event: _NextEvent, start: int, line: int) -> Iterator[Document]:
    """Yield the items of a document that is a mapping, and the document without them."""
    values: dict[str, object] = {}
    is_plain, before, after, items_line = True, "", start, 0
    while (kind := type(first := next_event())) is not yaml.MappingEndEvent:
        if kind is not yaml.ScalarEvent:
            raise collection_as_key(first.start_mark.line + 1)
        key, is_plain_key, _ = _value(next_event, first)
        event = next_event()
        kind = type(event)
        is_list = kind is yaml.SequenceStartEvent and not event.flow_style and not event.tag
        if key == "items" and after > start:
            raise repeated_key(first.start_mark.line + 1, key, items_line)
        if key == "items" and is_list and key not in values:
            items_line = first.start_mark.line + 1
            while (kind := type(event := next_event())) is not yaml.SequenceEndEvent:
                value, is_plain_item, end = _value(next_event, event)
                begin = event.start_mark
                # Each value keeps its column.
                part = f"{' ' * begin.column}{text[begin.index : end.index]}"
                yield from _document(value, is_plain_item, part, begin.line + 1)
            lines = event.start_mark.line - first.start_mark.line
            before = f"{text[start : first.start_mark.index]}{chr(10) * lines}"
            before += " " * event.start_mark.column
            after = event.start_mark.index
            continue
        value, is_plain_value, _ = _value(next_event, event)
        if type(key) is str and key not in values and key != "<<":
            values[key] = value
            is_plain = is_plain and is_plain_key and is_plain_value
        else:
            is_plain = False
    if values or not is_plain or after == start:
        rest = f"{before}{text[after : first.end_mark.index]}"
        yield from _document(values, is_plain, rest, line)


def _document(value: object, is_plain: bool, part: str, line: int) -> Iterator[Document]:
    """Yield a part; none, if it is empty."""
    if not is_plain:
        value = _read(part, line)
    if value is not None:
        yield Document(value, partial(_place, part, line), line)


def _read(part: str, line: int) -> object:
    try:
        documents = read_yaml(part)
    except SourceError:
        # The error has the lines of the text, in its message, too.
        documents = read_yaml("\n" * (line - 1) + part)
    return documents[0][0] if documents else None


def _place(part: str, line: int) -> Place:
    return read_yaml("\n" * (line - 1) + part)[0][1]


def _value(next_event: _NextEvent, event: _Event) -> tuple[Any, bool, Any]:  # noqa: C901, PLR0912 - one loop, for speed
    """Return the value that begins with an event, whether it is as read, and the mark of its end.

    A value with tags, merges, duplicate or unusual keys, or deep nesting is not as read.

    Raises:
        SourceError: A key is a list or a mapping, or the nesting is too deep: the parser's time
            grows with its square.
        YAMLError: The text is not YAML.
    """
    stack: list[tuple[Any, Any]] = []
    """The open collections, each with the key whose value is next."""
    top: Any = None
    key: Any = None
    is_plain = True
    while True:
        kind = type(event)
        if kind is yaml.ScalarEvent:
            value = plain_value(event.value) if event.implicit[0] else event.value
            if event.tag:
                is_plain = False
            if type(top) is dict and key is None:
                if type(value) is not str or value in top or value == "<<":
                    is_plain = False
                    value = str(value)
                key = value
                event = next_event()
                continue
        elif kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
            if type(top) is dict and key is None:
                raise collection_as_key(event.start_mark.line + 1)
            if len(stack) >= MAX_DEPTH:
                line = event.start_mark.line + 1
                raise SourceError(line, f"nested deeper than {MAX_DEPTH} levels")
            if event.tag or len(stack) >= MAX_DEPTH - 2:
                is_plain = False
            stack.append((top, key))
            top, key = ({} if kind is yaml.MappingStartEvent else []), None
            event = next_event()
            continue
        elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
            value = top
            top, key = stack.pop()
        else:
            is_plain, value = False, None
        if type(top) is dict:
            top[key] = value
            key = None
        elif type(top) is list:
            top.append(value)
        else:
            return value, is_plain, event.end_mark
        event = next_event()
