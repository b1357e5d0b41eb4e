"""A bar on a terminal for work that takes more than a second."""

from collections.abc import Callable, Iterable, Iterator, Sized
from typing import TypeVar

from typer import get_text_stream

from cli.render.output import is_quiet
from runtime.process.clock import Clock, monotonic

T = TypeVar("T")

AFTER = 1.0
"""Work that is done before this shows no bar [s]."""


def followed(
    items: Iterable[T],
    what: str,
    *,
    size: Callable[[T], int] = lambda _: 1,
    total: int | None = None,
    clock: Clock = monotonic,
) -> Iterator[T]:
    """Yield items; a bar on standard error tells how many, where that is a terminal.

    There is none in a pipe, on a terminal that cannot move its cursor, or where people ask for
    what is wrong alone.

    Args:
        items: What is worked on; until the next is asked for, one is being worked on.
        what: The work, in a few words.
        size: For how many an item counts.
        total: How many there are; None: their number, or nobody knows.
        clock: Tells when a second is over [s].
    """
    if is_quiet() or not get_text_stream("stderr").isatty():
        yield from items
        return
    known = len(items) if total is None and isinstance(items, Sized) else total
    began, done = clock(), 0
    iterator = iter(items)
    for item in iterator:
        yield item
        done += size(item)
        if clock() - began > AFTER:
            break
    else:
        return
    # 0.1 s that only long work needs.
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(
        *columns, console=console, transient=True, disable=console.is_dumb_terminal
    ) as bar:
        task = bar.add_task(what, total=known, completed=done)
        for item in iterator:
            yield item
            bar.advance(task, size(item))
