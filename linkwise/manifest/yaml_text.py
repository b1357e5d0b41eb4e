"""Read YAML as kubectl does, with the places of its values.

Built from parser events on an explicit stack, so that deep nesting cannot overflow the call stack,
and the expansion of aliases is counted before anything is copied.
"""

import re
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import yaml

from linkwise.manifest.json_text import repeated_key
from linkwise.manifest.place import MAX_DEPTH, Place, SourceError
from linkwise.manifest.yaml_scalar import plain_value

MAX_COPIED = 10_000
"""Maximum number of values that all aliases of a text expand to. Real manifests need dozens; each
line of a "billion laughs" needs ten times as many as the previous one."""
MAX_COPIED_CHARACTERS = 1 << 20
"""Maximum number of characters, of keys and strings, that all aliases of a text expand to. Aliases
of one long string share memory; in a text that is written from the value each is a copy."""

_Event: TypeAlias = Any
"""Parser events are untyped."""
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_CONTROL = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_TAG = "tag:yaml.org,2002:"
_COLLECTION_TAGS = frozenset({None, "!", f"{_TAG}map", f"{_TAG}seq"})
_TEXT_TAGS = frozenset({"!", f"{_TAG}str", f"{_TAG}timestamp"})
_PLAIN_TAGS = frozenset(f"{_TAG}{name}" for name in ("bool", "int", "float", "null"))
_MERGE = "<<"


def read_yaml(text: str) -> list[tuple[object, Place]]:
    """Return the value and the places of each non-empty document.

    Booleans and numbers are those of YAML 1.1 as kubectl reads it, dates stay text, keys become
    text, `<<` merges.

    Raises:
        SourceError: The text is not YAML, has a duplicate key, is nested beyond `MAX_DEPTH`, or its
            aliases expand to more than `MAX_COPIED` values or `MAX_COPIED_CHARACTERS`.

    Cost: linear in the text and in the expansion of its aliases.
    """
    if control := _control_error(text):
        raise control
    composer = _Composer()
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            composer.take(event)
    except yaml.MarkedYAMLError as error:
        raise source_error(error, text) from None
    return composer.documents


@dataclass(slots=True)
class _Size:
    """Size of a value with all aliases expanded."""

    values: int = 1
    """The value and all values in it."""
    characters: int = 0
    """Of keys and strings."""
    depth: int = 0
    """Levels of nesting below it."""

    def add(self, inner: "_Size") -> None:
        """Count a value that is added to this one."""
        self.values += inner.values
        self.characters += inner.characters
        self.depth = max(self.depth, inner.depth + 1)


@dataclass(slots=True)
class _Open:
    """An open mapping or sequence."""

    value: dict[str, object] | list[object]
    parts: dict[str, Place] | list[Place]
    line: int
    anchor: str | None
    size: _Size = field(default_factory=_Size)
    key: list[tuple[str, int]] = field(default_factory=list)
    """The key whose value is next, and its line; empty if none is expected."""
    merges: bool = False


class _Composer:
    """Builds documents from parser events."""

    def __init__(self) -> None:
        self.documents: list[tuple[object, Place]] = []
        self.open: list[_Open] = []
        self.anchors: dict[str, tuple[object, Place, _Size] | None] = {}
        """The value of each anchor; None while it is open."""
        self.copied = _Size(0)

    def take(self, event: _Event) -> None:
        """Process the next parser event."""
        line = event.start_mark.line + 1
        match event:
            case yaml.ScalarEvent() if self._at_key():
                self._key(event, line)
            case yaml.ScalarEvent():
                place = Place(line, (), line + 1 if event.style == "|" else None)
                size = _Size(characters=len(event.value))
                self._finish(_scalar(event, line), place, size, event.anchor)
            case yaml.MappingStartEvent():
                self._start(_Open({}, {}, line, event.anchor), event.tag)
            case yaml.SequenceStartEvent():
                self._start(_Open([], [], line, event.anchor), event.tag)
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                done = self.open.pop()
                if done.merges and isinstance(done.value, dict) and isinstance(done.parts, dict):
                    _merge(done.value, done.parts)
                self._finish(done.value, Place(done.line, done.parts), done.size, done.anchor)
            case yaml.AliasEvent():
                self._alias(str(event.anchor), line)
            case yaml.DocumentStartEvent():
                self.anchors.clear()
            case _:
                pass

    def _at_key(self) -> bool:
        return bool(self.open) and isinstance(self.open[-1].value, dict) and not self.open[-1].key

    def _key(self, event: _Event, line: int) -> None:
        key = _key_text(_scalar(event, line), line)
        top = self.open[-1]
        if isinstance(top.parts, dict) and key in top.parts:
            raise repeated_key(line, key, top.parts[key].line)
        top.merges = top.merges or (key == _MERGE and event.implicit[0])
        top.key.append((key, line))
        top.size.characters += len(key)
        if event.anchor:
            self.anchors[event.anchor] = (key, Place(line), _Size(characters=len(key)))

    def _start(self, opened: _Open, tag: str | None) -> None:
        if self._at_key():
            raise collection_as_key(opened.line)
        if tag not in _COLLECTION_TAGS:
            raise SourceError(opened.line, f"the tag {tag} means nothing here")
        if len(self.open) >= MAX_DEPTH:
            raise SourceError(opened.line, f"nested deeper than {MAX_DEPTH} levels")
        if opened.anchor:
            self.anchors[opened.anchor] = None
        self.open.append(opened)

    def _alias(self, anchor: str, line: int) -> None:
        if self._at_key():
            raise SourceError(line, "a key must be text, not an alias")
        if anchor not in self.anchors:
            raise SourceError(line, f"the alias *{anchor} names no anchor before it")
        named = self.anchors[anchor]
        if named is None:
            raise SourceError(line, f"the alias *{anchor} stands inside what it names")
        value, place, size = named
        self._count(size, line)
        self._finish(_copy(value), place, size, None)

    def _count(self, size: _Size, line: int) -> None:
        """Raise if a copy of this size would exceed a limit."""
        self.copied.add(size)
        if self.copied.values > MAX_COPIED:
            raise SourceError(line, f"aliases stand for more than {MAX_COPIED} values")
        if self.copied.characters > MAX_COPIED_CHARACTERS:
            message = f"aliases stand for more than {MAX_COPIED_CHARACTERS} characters"
            raise SourceError(line, message)
        if len(self.open) + size.depth > MAX_DEPTH:
            raise SourceError(line, f"nested deeper than {MAX_DEPTH} levels")

    def _finish(self, value: object, place: Place, size: _Size, anchor: str | None) -> None:
        """Add a complete value to its parent."""
        if anchor:
            self.anchors[anchor] = (value, place, size)
        if not self.open:
            if value is not None:
                self.documents.append((value, place))
            return
        top = self.open[-1]
        top.size.add(size)
        if isinstance(top.value, dict) and isinstance(top.parts, dict):
            key, line = top.key.pop()
            top.value[key] = value
            top.parts[key] = Place(line, place.parts, place.literal)
        elif isinstance(top.value, list) and isinstance(top.parts, list):
            top.value.append(value)
            top.parts.append(place)


def _copy(value: object) -> object:
    if isinstance(value, dict):
        return {key: _copy(inner) for key, inner in value.items()}
    return [_copy(inner) for inner in value] if isinstance(value, list) else value


def _scalar(event: _Event, line: int) -> str | int | float | bool | None:
    if event.tag in _TEXT_TAGS or (event.tag is None and not event.implicit[0]):
        return str(event.value)
    if event.tag is None or event.tag in _PLAIN_TAGS:
        return plain_value(event.value)
    raise SourceError(line, f"the tag {event.tag} means nothing here")


def _key_text(value: str | int | float | bool | None, line: int) -> str:
    if value is None:
        raise SourceError(line, "a key is missing before the colon")
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _merge(mapping: dict[str, object], parts: dict[str, Place]) -> None:
    """Add the entries of `<<`; keys of the mapping itself take precedence."""
    value, place = mapping.pop(_MERGE), parts.pop(_MERGE)
    sources = [(value, place)]
    if isinstance(value, list):
        sources = [(inner, place.find((i,))) for i, inner in enumerate(value)]
    for source, where in sources:
        if not isinstance(source, dict):
            raise SourceError(place.line, "<< takes a mapping, or a list of them")
        for key, inner in source.items():
            if key not in mapping:
                mapping[key] = inner
                parts[key] = where.find((key,))


def _control_error(text: str) -> SourceError | None:
    control = _CONTROL.search(text)
    if control is None:
        return None
    line = text.count("\n", 0, control.start()) + 1
    return SourceError(line, f"the character U+{ord(control[0]):04X} is not allowed")


def collection_as_key(line: int) -> SourceError:
    """Return the error of a key that is a list or a mapping, as in templates that begin so."""
    return SourceError(line, "a key must be text, not a list or a mapping")


def source_error(error: yaml.YAMLError, text: str) -> SourceError:
    """Return an error of the parser with the line of the text."""
    if not isinstance(error, yaml.MarkedYAMLError):
        return _control_error(text) or SourceError(1, f"not YAML: {error}")
    mark = error.problem_mark or error.context_mark
    line, column = (mark.line, mark.column) if mark else (0, 0)
    lines = text.split("\n")
    here = lines[line][column : column + 1] if line < len(lines) else ""
    if here == "\t":
        return SourceError(line + 1, "a tab cannot indent YAML, only blanks can")
    context = f" {error.context}" if error.context else ""
    return SourceError(line + 1, f"not YAML: {error.problem}{context} (column {column + 1})")
