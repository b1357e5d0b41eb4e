"""Shows a progress bar on a terminal for work that takes more than a second."""

from collections.abc import Callable, Iterable, Iterator, Sized
from typing import TypeVar

from cli.output.printer import is_quiet
from runtime.process.clock import Clock, monotonic

T = TypeVar("T")

AFTER = 1.0
"""Shorter work shows no bar [s]."""


def with_progress(
    items: Iterable[T],
    title: str,
    *,
    size: Callable[[T], int] = lambda _: 1,
    total: int | None = None,
    clock: Clock = monotonic,
) -> Iterator[T]:
    """Yield items, with a bar on standard error that shows how many are done.

    There is no bar in a pipe, on a terminal that cannot move its cursor, or with -q.

    Args:
        items: The work; an item counts as done when the next one is requested.
        title: The work, in a few words.
        size: Returns the number for which an item counts.
        total: The total number; None: the length of `items`, or unknown.
        clock: The time [s].
    """
    from typer import get_text_stream  # noqa: PLC0415 - servers have no typer

    if is_quiet() or not get_text_stream("stderr").isatty():
        yield from items
        return
    known = len(items) if total is None and isinstance(items, Sized) else total
    start, done = clock(), 0
    iterator = iter(items)
    for item in iterator:
        yield item
        done += size(item)
        if clock() - start > AFTER:
            break
    else:
        return
    # This costs 0.1 s to import; only long work needs it.
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    columns = (TextColumn(title), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(
        *columns, console=console, transient=True, disable=console.is_dumb_terminal
    ) as bar:
        task = bar.add_task(title, total=known, completed=done)
        for item in iterator:
            yield item
            bar.advance(task, size(item))
