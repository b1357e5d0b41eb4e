import json
import shlex
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from linkwise.cli.__main__ import run
from linkwise.cluster.finding import Code

PAGE = Path(__file__).parents[2] / "docs" / "findings.md"
FENCE = "```"

NOT_REACHED = {
    Code.UNREADABLE: "only a server reads a review; the command line refuses such a document",
    Code.INTERNAL: "only the servers answer with it; no input is known to bring it",
}
"""Codes without examples."""


@dataclass
class Section:
    code: str
    group: str
    """Its heading."""
    blocks: dict[str, str] = field(default_factory=dict)
    """Text by the last word of the fence: `bad`, `good`, `console`, or a file beside them."""

    @property
    def arguments(self) -> list[str]:
        """Of the command that the section shows."""
        command = self.blocks["console"].partition("\n")[0]
        prompt, _, line = command.partition("linkwise ")
        assert prompt == "$ "
        return shlex.split(line)

    @property
    def printed(self) -> str:
        return self.blocks["console"].partition("\n")[2]


def sections(text: str) -> list[Section]:
    found: list[Section] = []
    group, block, lines = "", None, []
    for line in text.splitlines(keepends=True):
        if block is None and line.startswith("## "):
            group = line.removeprefix("## ").strip()
        elif block is None and line.startswith("### "):
            found.append(Section(line.removeprefix("### ").strip(), group))
        elif block is None and line.startswith(FENCE):
            block, lines = line.removeprefix(FENCE).split()[-1], []
        elif line.startswith(FENCE):
            assert block not in found[-1].blocks, f"{found[-1].code} has two blocks {block}"
            found[-1].blocks[block], block = "".join(lines), None
        elif block:
            lines.append(line)
    return found


SECTIONS = sections(PAGE.read_text(encoding="utf-8"))
EXAMPLES = [pytest.param(one, id=one.code) for one in SECTIONS if one.code not in NOT_REACHED]


@pytest.fixture
def linkwise(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)

    def call(section, *arguments):
        for name, text in section.blocks.items():
            (tmp_path / f"{name}.yaml").write_text(text, encoding="utf-8")
        code = run(list(arguments))
        out, err = capsys.readouterr()
        assert err == ""
        return code, out

    return call


def findings(answer):
    judged = answer.get("items", [answer])
    return [finding for one in judged for finding in one["findings"]]


def test_every_code_has_a_section_and_every_section_is_a_code():
    assert [section.code for section in SECTIONS] == [code.value for code in Code]


def test_a_section_stands_in_the_group_of_its_code():
    strays = [one.code for one in SECTIONS if not one.group.startswith(f"{one.code[:3]}xx: ")]

    assert strays == []


def test_only_codes_that_no_input_brings_have_no_example():
    assert [one.code for one in SECTIONS if not one.blocks] == [*NOT_REACHED]


@pytest.mark.parametrize("section", EXAMPLES)
def test_the_bad_example_has_this_finding_and_no_other(linkwise, section):
    _, out = linkwise(section, *section.arguments, "-o", "json")

    assert {finding["code"] for finding in findings(json.loads(out))} == {section.code}


@pytest.mark.parametrize("section", EXAMPLES)
def test_the_finding_is_printed_as_quoted(linkwise, section):
    _, out = linkwise(section, *section.arguments)

    assert section.code in section.printed
    assert section.printed in out


@pytest.mark.parametrize("section", EXAMPLES)
def test_the_good_example_has_no_finding(linkwise, section):
    arguments = ["good.yaml" if word == "bad.yaml" else word for word in section.arguments]

    code, out = linkwise(section, *arguments, "--strict", "-o", "json")

    assert findings(json.loads(out)) == []
    assert code == 0
    assert arguments != section.arguments
