"""The options that every command has, as in kubectl: `-q`, `--to`, and the form `-o=json`."""

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext, redirect_stdout
from functools import wraps
from inspect import Parameter, signature
from io import StringIO
from typing import Annotated, Any

import typer

from linkwise.views.files.source import write_text
from linkwise.views.output.printer import EXIT_UNREADABLE, quietly

_SHORT_WITH_VALUE = re.compile(r"(-[A-Za-z])=(.*)", re.DOTALL)

_COMMON = {
    "to": Annotated[
        str | None, typer.Option("--to", metavar="FILE", help="Write the output to this file.")
    ],
    "quiet": Annotated[
        bool, typer.Option("--quiet", "-q", help="Show only problems, without warnings.")
    ],
}


def with_output_options(command: Callable[..., int]) -> Callable[..., int]:
    """Return a command that also takes `--to FILE` and `-q`.

    Args:
        command: Writes its answer to standard output and returns its exit code. One with a
            parameter `to` gets the file instead, and writes it itself.
    """
    own = signature(command)
    writes = "to" in own.parameters

    @wraps(command)
    def run(*, to: str | None, quiet: bool, **options: Any) -> int:  # noqa: ANN401 - any command's
        if writes:
            with quietly(quiet=quiet):
                return command(to=to, **options)
        written = StringIO()
        with quietly(quiet=quiet), redirect_stdout(written) if to else nullcontext():
            code = command(**options)
        if to and (code != EXIT_UNREADABLE or written.getvalue()):
            write_text(to, written.getvalue())
        return code

    common = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=_COMMON[name])
        for name, default in (("to", None), ("quiet", False))
    ]
    # typer reads both; functools.wraps shares the annotations of the command itself.
    run.__annotations__ = {**command.__annotations__, **_COMMON}
    others = (each for each in own.parameters.values() if each.name != "to")
    run.__signature__ = own.replace(parameters=[*others, *common])  # type: ignore[attr-defined]
    return run


def split_short_options(arguments: Iterable[str]) -> Iterator[str]:
    """Yield a command line in which `-o=json` is replaced by `-o json`."""
    words = iter(arguments)
    for word in words:
        if word == "--":
            yield from (word, *words)
        elif short := _SHORT_WITH_VALUE.fullmatch(word):
            yield from short.groups()
        else:
            yield word
