import shlex
from pathlib import Path

import pytest
import typer
from support.printed import blocks, commands

from linkwise.cli.__main__ import run
from linkwise.cli.root import app
from linkwise.planning.gang.crd import Phase

ROOT = Path(__file__).parents[2]
PAGES = sorted(f"docs/users/{page.name}" for page in (ROOT / "docs/users").glob("*.md"))
SHOWN = [block for page in PAGES for block in blocks(page) if block.startswith("$ ")]
PRINTED = [
    shlex.split(line, comments=True)
    for page in PAGES
    for line in commands(page)
    if line.startswith("linkwise ")
]


@pytest.mark.parametrize("shown", SHOWN, ids=lambda shown: shown.partition("\n")[0])
def test_an_answer_that_is_shown_is_what_the_command_prints(monkeypatch, capsys, shown):
    monkeypatch.chdir(ROOT)
    command, _, printed = shown.partition("\n")

    run(shlex.split(command)[2:])

    assert capsys.readouterr().out.startswith(printed)


@pytest.mark.parametrize("words", PRINTED, ids=" ".join)
def test_a_command_for_a_live_cluster_has_parameters_that_exist(words):
    command = typer.main.get_command(app).get_command(None, words[1])

    command.make_context(words[1], words[2:])


def test_every_phase_of_a_gang_that_waits_is_explained():
    page = (ROOT / "docs/users/waiting.md").read_text(encoding="utf-8")

    without = {Phase.FINISHED, Phase.GONE}
    assert [phase for phase in Phase if f"`{phase.value}`" not in page] == sorted(without)
