"""The notes of a release: the section of its version in CHANGELOG.md.

`python -m tools.release.notes v0.1.0` prints them, and fails where the tag, the package, the chart
and the changelog do not agree, so that no half of a release is published.
"""

import re
import sys
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]


def notes(tag: str, root: Path = ROOT) -> str:
    """Return the notes of the release that a tag names.

    Args:
        tag: `v` and the version, as `v0.1.0`.
        root: The repository.

    Raises:
        ValueError: The package or the chart has another version, or CHANGELOG.md has no section of
            this one.
    """
    version = tag.removeprefix("v")
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    chart = yaml.safe_load((root / "charts/linkwise/Chart.yaml").read_text(encoding="utf-8"))
    stated = {
        "pyproject.toml": project["version"],
        "version of charts/linkwise/Chart.yaml": chart["version"],
        "appVersion of charts/linkwise/Chart.yaml": chart["appVersion"],
    }
    wrong = [f"{place} is {value}" for place, value in stated.items() if value != version]
    if tag != f"v{version}" or wrong:
        raise ValueError(f"the tag is {tag}, but {'; '.join(wrong) or 'it has no v'}")
    changes = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    for heading, text in re.findall(
        r"^## (.+?)$(.*?)(?=^## |\Z)", changes, re.MULTILINE | re.DOTALL
    ):
        # As `## 0.1.0 - 2026-12-01`.
        if heading.partition(" ")[0] == version and text.strip():
            return f"{text.strip()}\n"
    raise ValueError(f"CHANGELOG.md has no section {version}; name the section Unreleased so")


if __name__ == "__main__":
    try:
        print(notes(sys.argv[1]), end="")
    except ValueError as error:
        sys.exit(str(error))
