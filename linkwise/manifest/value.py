"""Values of a document with their file and line, so that every error names its place."""

import re
from dataclasses import dataclass, field, replace
from functools import partial

from linkwise.cluster.objects.quantity import QuantityError, whole
from linkwise.manifest.lines import Document
from linkwise.manifest.place import Path, Place
from linkwise.manifest.place import field as words_of

_STEP = re.compile(r"\[([^\]]*)\]|([^.\[\]]+)")


class InputError(Exception):
    """An input cannot be read. The message is one line: the place, the problem and the fix."""


@dataclass(frozen=True, slots=True)
class Value:
    """One value of a document, of the kinds that JSON has."""

    file: str
    """The file as it was named, `<stdin>` for a pipe."""
    plain: object
    """The value itself: dict, list, str, int, float, bool or None."""
    document: Document = field(repr=False, compare=False)
    """The document that contains it."""
    path: Path = ()
    """From the top of the document."""

    @property
    def source(self) -> str:
        """`file:line`."""
        return f"{self.file}:{self.document.line_of(self.path)}"

    @property
    def words(self) -> str:
        """The path as `kubectl explain` writes it."""
        return words_of(self.path) or "the document"

    def at(self, words: str) -> "Value":
        """Return a field below by its path (`kubectl explain` notation), without its value."""
        return replace(self, plain=None, path=(*self.path, *path_of(words)))

    def place(self) -> "Value":
        """Return the same place without the value, which takes less memory."""
        start = None if self.path else self.document.start
        if start is None:
            return replace(self, plain=None)
        return Value(self.file, None, Document(None, partial(Place, start), start))

    def error(self, message: str) -> InputError:
        """Return an error about this value; the message names the problem and the fix."""
        return InputError(f"{self.source}: {message}")

    def mapping(self) -> dict[str, object]:
        """Return the value, which must be a map."""
        if not isinstance(self.plain, dict):
            raise self.error(f"{self.words} must be a map of keys and values.")
        return self.plain

    def child(self, key: str) -> "Value | None":
        """Return the value of a key of this map; None if it is absent or null."""
        plain = self.mapping().get(key)
        return None if plain is None else self._below(key, plain)

    def need(self, key: str) -> "Value":
        """Return the value of a key, which is required."""
        child = self.child(key)
        if child is None:
            near = next((one for one in self.mapping() if str(one).lower() == key.lower()), None)
            fix = f"write {key} instead of {near}" if near not in {None, key} else "add it"
            raise self.error(f"{words_of((*self.path, key))} is missing; {fix}.")
        return child

    def follow(self, path: Path) -> "Value":
        """Return the value at a path below; each step of it is required."""
        value = self
        for step in path:
            value = value.need(step) if isinstance(step, str) else value.item(step)
        return value

    def item(self, index: int) -> "Value":
        """Return an item of this list, which must be as long."""
        if not isinstance(self.plain, list) or index >= len(self.plain):
            raise self.error(f"{self.words} must be a list of more than {index} items.")
        return self._below(index, self.plain[index])

    def items(self) -> tuple["Value", ...]:
        """Return the items of this list."""
        if not isinstance(self.plain, list):
            raise self.error(f"{self.words} must be a list.")
        return tuple(self._below(index, item) for index, item in enumerate(self.plain))

    def listed(self, key: str) -> tuple["Value", ...]:
        """Return the items of the list under a key; empty if the key is absent."""
        child = self.child(key)
        return child.items() if child else ()

    def text(self) -> str:
        """Return the value, which must be text that is not empty."""
        if not isinstance(self.plain, str) or not self.plain:
            remedy = "" if isinstance(self.plain, dict | list | str) else "; write it in quotes"
            raise self.error(f"{self.words} must be text{remedy}.")
        return self.plain

    def texts(self) -> dict[str, str]:
        """Return the value, which must be a map of texts, such as labels."""
        return {
            key: "" if plain == "" else self._below(key, plain).text()
            for key, plain in self.mapping().items()
        }

    def whole(self, least: int = 0) -> int:
        """Return the value, which must be a whole number or a quantity of one."""
        number = None
        if isinstance(self.plain, str | int | float) and not isinstance(self.plain, bool):
            try:
                number = whole(self.plain)
            except QuantityError:
                number = None
        if number is None or number < least:
            raise self.error(f"{self.words} must be a whole number of at least {least}.")
        return number

    def true(self) -> bool:
        """Return the value, which must be true or false."""
        if not isinstance(self.plain, bool):
            raise self.error(f"{self.words} must be true or false.")
        return self.plain

    def _below(self, step: str | int, plain: object) -> "Value":
        return Value(self.file, plain, self.document, (*self.path, step))


def path_of(words: str) -> Path:
    """Parse a path in the notation of `kubectl explain`.

    >>> path_of("spec.containers[0].resources.limits[aliyun.com/gpu]")
    ('spec', 'containers', 0, 'resources', 'limits', 'aliyun.com/gpu')
    """
    return tuple(
        int(bracketed) if bracketed.isdigit() else bracketed or plain
        for bracketed, plain in _STEP.findall(words)
    )
