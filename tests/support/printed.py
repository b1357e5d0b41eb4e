"""Blocks of code that a document prints, and the commands in them."""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(
    r"^(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL
)
_PROGRAMS = (
    "linkwise",
    "kubectl",
    "curl",
    "docker",
    "make",
    "mkdir",
    "cat",
    "pipx",
    "manifests/",
    "helm",
)
"""What the first word of a command begins with; other blocks show what is printed."""
LOOKING = re.compile(r"kubectl (-n \S+ |--namespace=\S+ )?(get|describe|explain|auth can-i) [^<…]+")
"""Commands in sentences that change nothing and lack nothing."""
CHANGING = re.compile(r"kubectl (-n \S+ )?(rollout restart|annotate|label|delete) [^<…]+")
"""Commands in sentences that change an installation of the base, or remove a part of it."""
_END = re.compile(r"<<(\w+)$")


def text_of(page: str) -> str:
    """Return the text of a document below the root, or of all documents of a folder."""
    path = ROOT / page
    pages = sorted(path.glob("*.md")) if path.is_dir() else [path]
    return "\n".join(each.read_text(encoding="utf-8") for each in pages)


def blocks(page: str, language: str = "") -> list[str]:
    """Return the blocks of a language in a document or folder, without their indentation."""
    text = text_of(page)
    return [
        re.sub(f"^{found['indent']}", "", found["text"], flags=re.MULTILINE)
        for found in _BLOCK.finditer(text)
        if found["language"] == language
    ]


def commands(page: str) -> list[str]:
    """Return the commands that a document prints, each as a shell takes it."""
    return [
        command
        for block in blocks(page)
        if block.startswith(_PROGRAMS)
        for command in _commands(block)
    ]


def _commands(block: str) -> Iterator[str]:
    command, end = "", None
    for line in block.splitlines():
        command += f"{line}\n"
        if found := _END.search(line):
            end = found[1]
        if (end is None and not re.search(r"(\\|\|)\s*(#.*)?$", line)) or line == end:
            yield command.strip()
            command, end = "", None


def inline(page: str) -> list[str]:
    """Return the commands of kubectl and linkwise inside a document's sentences and tables."""
    text = _BLOCK.sub("", text_of(page))
    found = re.findall(r"`((?:kubectl|linkwise) [^`]+)`", text)
    return [command.replace("\\|", "|") for command in dict.fromkeys(found)]
