"""The policy that docs/replay.md writes is added to a comparison by the commands beside it."""

import shlex
import sys
from pathlib import Path

from support.printed import blocks, commands

from linkwise.cli.__main__ import run
from tools.bench.traces import philly_lines

PAGE = "docs/replay.md"


def test_the_policy_of_the_page_gets_a_line(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    (code,) = blocks(PAGE, "python")
    Path("fullest.py").write_text(code, encoding="utf-8")
    Path("philly.csv").write_text("".join(philly_lines(60)), encoding="utf-8")

    lines = [line for line in commands(PAGE) if "--append" in line]
    assert [run(shlex.split(line)[1:]) for line in lines] == [0, 0]
    out, err = capsys.readouterr()
    assert err == ""
    shown = [line.split()[0] for line in out.splitlines() if line]
    assert shown.count("linkwise") == shown.count("best-fit") == 6
    assert shown.count("fullest:factory") == 3
