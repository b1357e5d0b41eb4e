"""Where in a text each value of a document was written."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

MAX_DEPTH = 100
"""Deepest nesting that is read. Kubernetes' own objects stay below 30; code that walks a document
may thus recurse without a thought."""

Path: TypeAlias = tuple[str | int, ...]
"""Keys and list indices from the document's root to a value."""


class SourceError(ValueError):
    """A text is no YAML or JSON; one sentence says what is wrong, and the line where."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(f"line {line}: {message}")
        self.line = line
        self.message = message


@dataclass(slots=True)
class Place:
    """The line of one value, and the places of what is in it."""

    line: int
    """Counted from 1: the key's line for a mapping's entry, else the line where it starts."""
    parts: "Mapping[str, Place] | Sequence[Place]" = ()
    literal: int | None = None
    """First line of the content of a literal block (`|`), whose lines are the text's own."""

    def find(self, path: Path = ()) -> "Place":
        """Return the place of a path, or of the nearest parent that was written."""
        place = self
        for step in path:
            inner = place._step(step)
            if inner is None:
                break
            place = inner
        return place

    def _step(self, step: str | int) -> "Place | None":
        if isinstance(self.parts, Mapping):
            return self.parts.get(str(step))
        if isinstance(step, int) and step < len(self.parts):
            return self.parts[step]
        return None


def field(path: Iterable[str | int]) -> str:
    """Return a path as people write it.

    >>> field(("data", 0, "matchLabels", "example.com/a"))
    'data[0].matchLabels[example.com/a]'
    """
    text = ""
    for step in path:
        if isinstance(step, str) and step.isidentifier():
            text += f".{step}" if text else step
        else:
            text += f"[{step}]"
    return text
