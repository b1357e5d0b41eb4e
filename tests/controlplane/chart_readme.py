"""The table of values in the chart's README, from values.yaml and its comments."""

import re
from collections.abc import Iterator
from pathlib import Path

from controlplane.manifests import ROOT

README = ROOT / "charts/linkwise/README.md"
_VALUES = ROOT / "charts/linkwise/values.yaml"
_BEGIN = "<!-- Written by `make manifests` from values.yaml. -->\n"
_KEY = re.compile(r"( *)([A-Za-z]\w*):(?: (.*))?")


def readme(path: Path = README) -> str:
    """Return the README with the present table at its end."""
    head, _, _ = path.read_text(encoding="utf-8").partition(_BEGIN)
    rows = "".join(
        f"| `{name}` | {f'`{default}`' if default else ''} | {_escaped(meaning)} |\n"
        for name, default, meaning in values(_VALUES.read_text(encoding="utf-8"))
    )
    return f"{head}{_BEGIN}\n| value | default | meaning |\n|---|---|---|\n{rows}"


def values(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield the path, the default and the comment of each value; groups only with a comment.

    A comment belongs to the key directly below it. Lists and maps of one line are values.
    """
    above: list[tuple[int, str]] = []
    comment: list[str] = []
    for line in text.splitlines():
        stripped = line.strip()
        if stripped.startswith("#"):
            comment.append(stripped[1:].strip())
        elif found := _KEY.fullmatch(line):
            indent, key, default = len(found[1]), found[2], found[3] or ""
            above = [each for each in above if each[0] < indent]
            if default or comment:
                yield ".".join([*(name for _, name in above), key]), default, " ".join(comment)
            above.append((indent, key))
            comment = []
        else:
            comment = []


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")
