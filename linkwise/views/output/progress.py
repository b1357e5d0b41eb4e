"""Shows a progress bar on a terminal for work that takes more than a second."""

import os
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import ExitStack, contextmanager
from typing import TypeVar

from linkwise.runtime.process.clock import Clock, monotonic
from linkwise.views.output.printer import is_quiet

T = TypeVar("T")

AFTER = 1.0
"""Shorter work shows no bar [s]."""

Advance = Callable[[int], None]
"""Takes how much more of the work is done."""


def with_progress(
    items: Iterable[T],
    title: str,
    *,
    size: Callable[[T], int] = lambda _: 1,
    total: int | None = None,
    clock: Clock = monotonic,
) -> Iterator[T]:
    """Yield items, with a bar on standard error that shows how many are done.

    Args:
        items: The work; an item counts as done when the next one is requested.
        title: The work, in a few words.
        size: Returns the number for which an item counts.
        total: The total number; None: the length of `items`, or unknown.
        clock: The time [s].
    """
    known = len(items) if total is None and isinstance(items, Sized) else total
    with progress_bar(title, known, clock) as advance:
        for item in items:
            yield item
            advance(size(item))


@contextmanager
def progress_bar(title: str, total: int | None, clock: Clock = monotonic) -> Iterator[Advance]:
    """Show a bar on standard error within the block, which gets the function that moves it.

    There is no bar in a pipe, on a terminal that cannot move its cursor, or with -q.

    Args:
        title: The work, in a few words.
        total: How much work there is; None: unknown.
        clock: The time [s].
    """
    from typer import get_text_stream  # noqa: PLC0415 - servers have no typer

    # Old versions of rich end a bar with an empty line there.
    is_dumb = os.environ.get("TERM") in {"dumb", "unknown"}
    if is_quiet() or is_dumb or not get_text_stream("stderr").isatty():
        yield lambda _: None
        return
    start, done = clock(), 0
    shown: Advance | None = None
    with ExitStack() as open_bars:

        def advance(more: int) -> None:
            nonlocal done, shown
            done += more
            if shown is not None:
                shown(more)
            elif clock() - start > AFTER:
                shown = open_bars.enter_context(_bar(title, total, done))

        yield advance


@contextmanager
def _bar(title: str, total: int | None, done: int) -> Iterator[Advance]:
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
        task = bar.add_task(title, total=total, completed=done)
        yield lambda more: bar.advance(task, more)
