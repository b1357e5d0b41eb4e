"""Places (line numbers) of the values of a document."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

MAX_DEPTH = 100
"""Maximum depth of nesting. Kubernetes objects stay below 30. Code that walks a document may
therefore recurse."""

Path: TypeAlias = tuple[str | int, ...]
"""Keys and list indices from the document's root to a value."""


class SourceError(ValueError):
    """A text is not YAML or JSON. Has the line and one sentence."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(f"line {line}: {message}")
        self.line = line
        self.message = message


@dataclass(slots=True)
class Place:
    """The line of one value, and the places of the values in it."""

    line: int
    """Counted from 1: the line of the key for an entry of a mapping, else the first line."""
    parts: "Mapping[str, Place] | Sequence[Place]" = ()
    literal: int | None = None
    """First line of the content of a literal block (`|`)."""

    def find(self, path: Path = ()) -> "Place":
        """Return the place of a path, or of its nearest existing parent."""
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
    """Format a path.

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
