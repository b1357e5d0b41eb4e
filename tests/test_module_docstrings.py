"""Each module begins with a statement of what it does, not with a question that it answers."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = (
    "linkwise",
    "webhook",
    "scorer",
    "certs",
    "agent",
    "dashboard",
    "tests",
    "tools",
    ".ci",
    "docs",
)
QUESTION = re.compile(r"(What|Which|Who|Whose|How|Why|When|Where|Whether)\b")


def heads():
    """Yield each module with the first sentence of its head, if it has one."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            head = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
            yield path.relative_to(ROOT).as_posix(), head or ""
        for path in sorted((ROOT / folder).rglob("*.js")):
            yield path.relative_to(ROOT).as_posix(), js_head(path.read_text(encoding="utf-8"))


def js_head(source):
    """Return the first comment of a module, without directives such as `@ts-check`."""
    comments = re.findall(r"^(?:/\*\*?|//)\s*(.*)", source, re.MULTILINE)
    return next((text for text in comments if not text.startswith("@")), "")


def test_modules_begin_with_a_statement():
    assert [(path, head) for path, head in heads() if QUESTION.match(head)] == []


@pytest.mark.parametrize(
    ("source", "head"),
    [
        ("// @ts-check\n/** The frame. */\n", "The frame. */"),
        ('"use strict";\n// What is drawn.\n', "What is drawn."),
        ("let none;", ""),
    ],
)
def test_head_of_a_script_is_its_first_comment(source, head):
    assert js_head(source) == head
