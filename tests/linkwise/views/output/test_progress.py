import io
import itertools

import pytest

from linkwise.views.output.printer import quietly
from linkwise.views.output.progress import with_progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def stderr(monkeypatch):
    def use(stream: io.StringIO) -> io.StringIO:
        monkeypatch.setattr("sys.stderr", stream)
        monkeypatch.setenv("TERM", "xterm")
        for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
            monkeypatch.delenv(name, raising=False)
        return stream

    return use


def slow():
    """Return a clock on which each look takes half a second."""
    seconds = itertools.count(0, 0.5)
    return lambda: next(seconds)


def work(clock, total: int | None = 20) -> list[int]:
    return list(with_progress(range(20), "Placing pods", total=total, clock=clock))


def test_long_work_has_a_bar_on_a_terminal(stderr):
    shown = stderr(Terminal())

    assert work(slow()) == list(range(20))
    assert "Placing pods" in shown.getvalue()
    assert "20/20" in shown.getvalue()


def test_work_of_a_second_has_none(stderr):
    shown = stderr(Terminal())

    assert work(lambda: 0.0) == list(range(20))
    assert not shown.getvalue()


def test_there_is_none_in_a_pipe(stderr):
    shown = stderr(io.StringIO())

    assert work(slow()) == list(range(20))
    assert not shown.getvalue()


def test_quiet_mode_has_no_bar(stderr):
    shown = stderr(Terminal())

    with quietly(quiet=True):
        work(slow())

    assert not shown.getvalue()


def test_there_is_none_on_a_dumb_terminal(stderr, monkeypatch):
    shown = stderr(Terminal())
    monkeypatch.setenv("TERM", "dumb")

    assert work(slow()) == list(range(20))
    assert not shown.getvalue()


def test_the_end_of_the_bar_leaves_nothing_on_the_terminal(stderr):
    shown = stderr(Terminal())

    work(slow())

    assert shown.getvalue().endswith("\x1b[2K")


def test_exceptions_of_the_work_are_raised(stderr):
    stderr(Terminal())

    def broken():
        yield from range(5)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        list(with_progress(broken(), "Reading", clock=slow()))
