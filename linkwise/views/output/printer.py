"""Prints results: JSON and YAML for scripts, plain columns for people."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from enum import StrEnum
from typing import NamedTuple, TypeAlias, TypeVar

from msgspec import to_builtins

from linkwise.cluster.finding import printable
from linkwise.views.output.document import Document


class Format(StrEnum):
    """The output formats of a command."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


class Paint(NamedTuple):
    """Text in a colour, which only a terminal shows."""

    text: str
    colour: str | None = None
    bold: bool = False


Cell: TypeAlias = str | Paint

T = TypeVar("T")

EXIT_UNREADABLE = 2
"""Exit code: usage, or input that cannot be read."""

GOOD, BAD, WARNING, QUIET = "green", "red", "yellow", "bright_black"

_quiet = ContextVar("quiet", default=False)


@contextmanager
def quietly(*, quiet: bool) -> Iterator[None]:
    """Within this context, write no warnings if `quiet` is true."""
    before = _quiet.set(quiet)
    try:
        yield
    finally:
        _quiet.reset(before)


def is_quiet() -> bool:
    """Return whether -q was given."""
    return _quiet.get()


MAX_ROWS, MAX_NAMES = 50, 8
"""The numbers of rows, and of names in a line, that are shown unless -o wide is given."""

_wide = ContextVar("wide", default=False)


@contextmanager
def widely(*, wide: bool) -> Iterator[None]:
    """Within this context, cut nothing if `wide` is true."""
    before = _wide.set(wide)
    try:
        yield
    finally:
        _wide.reset(before)


def cut(items: Sequence[T], most: int = MAX_ROWS) -> Sequence[T]:
    """Return the first of many items; all of them if -o wide is given."""
    return items if _wide.get() else items[:most]


def say_rest(left: int) -> None:
    """Write the number of items that are not shown, if any, and how to see them."""
    if left > 0:
        say(Paint(f"… {left:,} more (-o wide)", QUIET))


def named(names: Sequence[str], most: int = MAX_NAMES) -> str:
    """Return names in a line; of many, the first ones."""
    shown = cut(names, most)
    left = len(names) - len(shown)
    return ", ".join(shown) + (f" and {left:,} more" if left else "")


def write(text: str, *, err: bool = False) -> None:
    """Write a text as it is to standard output, or to standard error."""
    # The image of the servers, one of which serves the dashboard, has no typer.
    from typer import echo  # noqa: PLC0415

    echo(text, nl=False, err=err)


def emit(document: Document, output: Format) -> None:
    """Write a document for scripts to standard output."""
    write(dumped(to_builtins(document), output))


def dumped(document: object, output: Format) -> str:
    """Return a document for scripts, as JSON or YAML text."""
    if output is Format.JSON:
        return f"{json.dumps(document, indent=2, ensure_ascii=False)}\n"
    from linkwise.views.output.yaml_text import yaml_text  # noqa: PLC0415 - costs 40 ms; only this format needs it

    return yaml_text(document)


def say(*cells: Cell) -> None:
    """Write one line for people to standard output."""
    write(" ".join(_shown(cell) for cell in cells).rstrip() + "\n")


def sentence(text: str) -> str:
    """Return a message with a full stop, and with a capital unless it starts with a name.

    >>> sentence("write 20 or 25"), sentence("aliyun.com/gpu has no limit")
    ('Write 20 or 25.', 'aliyun.com/gpu has no limit.')
    """
    ended = text if text.endswith((".", "?", "!")) else f"{text}."
    first = ended.partition(" ")[0].rstrip(",:;.")
    is_word = first.isalpha() and first.islower()
    return f"{ended[:1].upper()}{ended[1:]}" if is_word else ended


def warn(message: str) -> None:
    """Write a warning to standard error, in one line, unless -q was given."""
    if not is_quiet():
        complain(message)


def complain(message: str) -> None:
    """Write one line to standard error."""
    write(f"linkwise: {printable(message)}\n", err=True)


def table(rows: Sequence[Sequence[Cell]], *, indent: int = 0) -> None:
    """Write rows for people, with their columns aligned."""
    for line in aligned(rows):
        write((" " * indent + line).rstrip() + "\n")


def aligned(rows: Sequence[Sequence[Cell]]) -> Iterator[str]:
    """Yield rows as lines with aligned columns.

    >>> list(aligned([["GPU", "LINK"], ["GPU0", "X"]]))
    ['GPU   LINK', 'GPU0  X   ']
    """
    if not rows:
        return
    columns = max(map(len, rows))
    widths = [max(len(_plain(row[i])) for row in rows if i < len(row)) for i in range(columns)]
    for row in rows:
        padding = (
            " " * (width - len(_plain(cell))) for cell, width in zip(row, widths, strict=False)
        )
        yield "  ".join(f"{_shown(cell)}{space}" for cell, space in zip(row, padding, strict=False))


def _plain(cell: Cell) -> str:
    return printable(cell.text if isinstance(cell, Paint) else cell)


def _shown(cell: Cell) -> str:
    if isinstance(cell, str):
        return printable(cell)
    from typer import style  # noqa: PLC0415 - as above

    return style(printable(cell.text), fg=cell.colour, bold=cell.bold or None)
