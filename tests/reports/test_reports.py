import shlex
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from linkwise.cli.__main__ import run

TABLES = sorted(Path(__file__).parent.glob("*.yaml"))


class Report(NamedTuple):
    id: str
    source: str
    right: str
    """In one sentence; for people."""
    files: dict[str, str]
    command: str
    exit: int = 0
    says: tuple[str, ...] = ()
    never: tuple[str, ...] = ()


def reports():
    rows = [row for table in TABLES for row in yaml.safe_load(table.read_text())["reports"]]
    return [Report(**row) for row in rows]


REPORTS = reports()


@pytest.mark.parametrize("report", REPORTS, ids=[report.id for report in REPORTS])
def test_a_reported_text_gets_the_right_answer(report, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "1000")
    for name, text in report.files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")

    code = run(shlex.split(report.command))

    # Lines may be wrapped, so that the words count, not the blanks between them.
    printed = " ".join("".join(capsys.readouterr()).split())
    assert code == report.exit, printed
    assert [words for words in report.says if words not in printed] == [], printed
    assert [words for words in report.never if words in printed] == [], printed


def test_each_report_has_an_id_of_its_own():
    assert len({report.id for report in REPORTS}) == len(REPORTS)
