"""Read large YAML in parts: the documents of a stream, and the items of a List one by one.

A part is built by a short loop without the places of its values. Parts with anchors, tags or
mistakes are left to `yaml_text`, which reads all of YAML.
"""

import re
from collections.abc import Iterator
from functools import partial
from typing import Any

import yaml

from linkwise.manifest.lines import Document
from linkwise.manifest.place import MAX_DEPTH, Place, SourceError
from linkwise.manifest.yaml_scalar import plain_value
from linkwise.manifest.yaml_text import read_yaml

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MARK = re.compile(r"^(?:---|\.\.\.)(?=\s|$).*$", re.MULTILINE)
_PLAIN_MARK = re.compile(r"---[ \t]*(?:#.*)?")
_UNUSUAL = re.compile(r"(?:^|[\s\[{,:-])[&*!][^\s&]|^%", re.MULTILINE)
"""A possible anchor, alias or tag, which parts cannot have; or a directive."""
_ITEMS = re.compile(r"^items:[ \t]*\n((?:[ \t]*(?:#.*)?\n)*)( *)- ", re.MULTILINE)


class _Unusual(Exception):  # noqa: N818 - control flow, not an error.
    """A part has syntax that the short loop does not read."""


def read_parts(text: str) -> Iterator[Document]:
    """Yield the documents of a YAML text; for a List first its items, then the rest of it.

    Args:
        text: YAML. At most one part is in memory as values at a time.

    Raises:
        SourceError: As `yaml_text.read_yaml`, after the parts before it were yielded.

    Cost: about 4 µs a value; lines are found at the first request for one.
    """
    marks = _MARK.finditer(text)
    if _UNUSUAL.search(text) or any(not _PLAIN_MARK.fullmatch(mark[0]) for mark in marks):
        yield from (Document(value, place.find) for value, place in read_yaml(text))
        return
    for line, part in _parts(text):
        value = _value(part, line)
        if value is not None:
            yield Document(value, partial(_place, part, line), line)


def _parts(text: str) -> Iterator[tuple[int, str]]:
    """Yield the parts of a text, each with the number of its first line."""
    line, start = 1, 0
    marks = list(_MARK.finditer(text))
    for end, after in [*((mark.start(), mark.end()) for mark in marks), (len(text), len(text))]:
        yield from _items(text[start:end], line)
        line += text.count("\n", start, after)
        start = after


def _items(document: str, line: int) -> Iterator[tuple[int, str]]:
    """Yield the items of a document, and the document without them."""
    found = _ITEMS.search(document)
    if found is None:
        yield line, document
        return
    indent = found[2]
    first = found.end() - len(indent) - 2
    # A line at the indentation of the list that is not an item ends it.
    border = re.compile(
        rf"^{indent}(?:- |(?=[^\s#-])|-\n)|^(?! {{{len(indent)}}})[ ]*[^\s#]", re.MULTILINE
    )
    starts = [first]
    end = len(document)
    for mark in border.finditer(document, first + 1):
        if not mark[0].startswith(f"{indent}-"):
            end = mark.start()
            break
        starts.append(mark.start())
    at = line + document.count("\n", 0, first)
    for start, stop in zip(starts, [*starts[1:], end], strict=True):
        # The hyphen becomes a space, so that each value keeps its column.
        yield at, f"{indent}  {document[start + len(indent) + 2 : stop]}"
        at += document.count("\n", start, stop)
    before = document[: found.start()]
    yield line, f"{before}{chr(10) * document.count(chr(10), found.start(), end)}{document[end:]}"


def _value(part: str, line: int) -> object:
    try:
        return _plain(part)
    except (_Unusual, yaml.YAMLError):
        documents = _read(part, line)
    if len(documents) > 1:
        raise SourceError(line, "not YAML: several documents stand where one does")
    return documents[0][0] if documents else None


def _read(part: str, line: int) -> list[tuple[object, Place]]:
    try:
        return read_yaml(part)
    except SourceError as error:
        raise SourceError(line + error.line - 1, error.message) from None


def _place(part: str, line: int) -> Place:
    return read_yaml("\n" * (line - 1) + part)[0][1]


def _plain(part: str) -> object:  # noqa: C901, PLR0912 - one loop, for speed
    """Return the value of a text of one document without anchors and tags.

    Raises:
        _Unusual: It has some, several documents, or duplicate keys.
        YAMLError: It is not YAML.
    """
    loader = _LOADER(part)
    event = loader.get_event
    stack: list[tuple[Any, Any]] = []
    """The open collections, each with the key whose value is next."""
    top: Any = None
    key: Any = None
    root: list[object] = []
    try:
        while True:
            one = event()
            kind = type(one)
            if kind is yaml.ScalarEvent:
                if one.anchor or one.tag:
                    raise _Unusual
                value = plain_value(one.value) if one.implicit[0] else one.value
                if type(top) is dict and key is None:
                    if type(value) is not str or value in top or value == "<<":
                        raise _Unusual
                    key = value
                    continue
            elif kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
                if one.anchor or one.tag or len(stack) >= MAX_DEPTH - 1:
                    raise _Unusual
                if type(top) is dict and key is None:
                    raise _Unusual
                stack.append((top, key))
                top, key = ({} if kind is yaml.MappingStartEvent else []), None
                continue
            elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
                value = top
                top, key = stack.pop()
            elif kind is yaml.StreamEndEvent:
                break
            elif kind is yaml.AliasEvent:
                raise _Unusual
            else:
                continue
            if type(top) is dict:
                top[key] = value
                key = None
            elif type(top) is list:
                top.append(value)
            else:
                root.append(value)
    finally:
        loader.dispose()
    if len(root) > 1:
        raise _Unusual
    return root[0] if root else None
