"""The page of the package: a package index shows it without the files of the repository."""

import re
import shlex
from pathlib import Path

import pytest
from support.printed import commands

from linkwise.cli.__main__ import run

PAGE = (Path(__file__).parents[2] / "docs/package.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("command", commands("docs/package.md"))
def test_each_command_needs_no_file_and_runs_as_it_stands(command, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)

    code = run(shlex.split(command, comments=True)[1:])

    out, err = capsys.readouterr()
    assert (code, err) == (0, "")
    assert out


def test_no_link_or_picture_leads_to_a_file_of_the_repository():
    assert re.findall(r"\]\((?!https:)[^)]*\)|<img|<a ", PAGE) == []
