"""A value that somebody wrote in a file, and where: every complaint about it has its line."""

import re
from dataclasses import dataclass, field, replace
from functools import partial

from cluster.quantity import QuantityError, whole
from manifest.lines import Document
from manifest.place import Path, Place
from manifest.place import field as words_of

_STEP = re.compile(r"\[([^\]]*)\]|([^.\[\]]+)")


class InputError(Exception):
    """What was given cannot be read: one line for people that says where, what, and what to do."""


@dataclass(frozen=True, slots=True)
class Value:
    """One value of a document, of the kinds that JSON has."""

    file: str
    """The file as it was named, `<stdin>` for a pipe."""
    plain: object
    """The value itself: dict, list, str, int, float, bool or None."""
    document: Document = field(repr=False, compare=False)
    """What it is a part of."""
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
        """Return a field below, given as `kubectl explain` writes its path; only for its line."""
        return replace(self, plain=None, path=(*self.path, *path_of(words)))

    def place(self) -> "Value":
        """Return the same place without what stands there, for who keeps many of them."""
        start = None if self.path else self.document.start
        if start is None:
            return replace(self, plain=None)
        return Value(self.file, None, Document(None, partial(Place, start), start))

    def error(self, message: str) -> InputError:
        """Return a complaint about this value: what is wrong with it and what to do."""
        return InputError(f"{self.source}: {message}")

    def mapping(self) -> dict[str, object]:
        """Return the value, which must be a map."""
        if not isinstance(self.plain, dict):
            raise self.error(f"{self.words} must be a map of keys and values.")
        return self.plain

    def child(self, key: str) -> "Value | None":
        """Return what stands under a key of this map; None where it is absent or null."""
        plain = self.mapping().get(key)
        return None if plain is None else self._below(key, plain)

    def need(self, key: str) -> "Value":
        """Return what stands under a key, which must be there."""
        child = self.child(key)
        if child is None:
            raise self.error(f"{words_of((*self.path, key))} is missing; add it.")
        return child

    def items(self) -> tuple["Value", ...]:
        """Return the items of this list."""
        if not isinstance(self.plain, list):
            raise self.error(f"{self.words} must be a list.")
        return tuple(self._below(index, item) for index, item in enumerate(self.plain))

    def listed(self, key: str) -> tuple["Value", ...]:
        """Return the items of the list under a key; none where it is absent."""
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
        """Return the value, which must be a whole number; a quantity will do."""
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
    """Return the path of a field that is given as `kubectl explain` writes it.

    >>> path_of("spec.containers[0].resources.limits[aliyun.com/gpu]")
    ('spec', 'containers', 0, 'resources', 'limits', 'aliyun.com/gpu')
    """
    return tuple(
        int(bracketed) if bracketed.isdigit() else bracketed or plain
        for bracketed, plain in _STEP.findall(words)
    )
