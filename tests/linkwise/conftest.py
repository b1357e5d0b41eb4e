import io
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import structlog

from linkwise.cli.__main__ import run


class Ran(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def linkwise(capsys, monkeypatch, tmp_path) -> Iterator[Callable[..., Ran]]:
    """Runs the command in an empty folder, in this process."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str, stdin: str | bytes = "") -> Ran:
        raw = stdin.encode() if isinstance(stdin, str) else stdin
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(raw)))
        code = run(list(arguments))
        return Ran(code, *capsys.readouterr())

    yield call
    # The dashboard turns the log of the libraries off.
    structlog.reset_defaults()


@pytest.fixture
def write(tmp_path) -> Callable[[str, str], Path]:
    """Writes a file of the folder in which the command runs."""

    def write_file(name: str, text: str) -> Path:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write_file
