"""The site: the documents of this repository, as they are, with a table of contents and search.

`make docs` builds it into dist/site. A link that leads nowhere ends the build.
"""

import re
import shutil
import tomllib
from pathlib import Path

from sphinx.application import Sphinx

ROOT = Path(__file__).parents[2]
SECTIONS = {
    "Start": ("docs/command", "docs/examples/README", "docs/examples/alibaba/README"),
    "Users": ("docs/users/*", "docs/dry-run", "docs/live", "docs/dashboard"),
    "Administrators": (
        "docs/operations/install",
        "charts/linkwise/README",
        "docs/nodes",
        "docs/claims",
        "docs/policy",
        "docs/from-*",
        "docs/beside",
        "docs/operations",
        "docs/operations/*",
        "SECURITY",
    ),
    "Reference": ("docs/findings", "docs/filters", "docs/topologies", "docs/glossary"),
    "Internals": (
        "docs/architecture",
        "docs/code-map",
        "docs/replay",
        "docs/benchmarks",
        "docs/loop-bounds",
        "docs/gang-pitfalls",
        "docs/admission-checklist",
        "docs/fast-against-best-effort",
        "docs/decisions/*",
        "CONTRIBUTING",
        "tests/reports/README",
        "tests/FLAKY",
        "docs/release",
        "docs/package",
        "CHANGELOG",
    ),
}
"""The pages of each section; a pattern takes those that no line before it named."""

_PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
project = "Linkwise"
version = release = _PROJECT["version"]
author = ""
root_doc = "README"
include_patterns = [
    "*.md", "docs/**.md", "charts/linkwise/README.md", "tests/FLAKY.md", "tests/reports/README.md",
]  # fmt: skip
extensions = ["myst_parser"]
# As in the repository: a heading's address is the one that its host gives it.
myst_heading_anchors = 6
html_theme = "furo"
html_title = f"Linkwise {version}"
html_show_copyright = html_show_sphinx = html_copy_source = False


def setup(app: Sphinx) -> None:
    """Adapt the pages to a site."""
    app.connect("source-read", _adapt)
    app.connect("build-finished", _write_index)


def _adapt(_: Sphinx, name: str, source: list[str]) -> None:
    """Give the first page the table of contents, and drop links to folders, which no site shows."""
    source[0] = re.sub(r"\[([^]]+)\]\([^)]*/\)", r"\1", source[0])
    if name == root_doc:
        for caption, pages in SECTIONS.items():
            head = f"\n```{{toctree}}\n:hidden:\n:glob:\n:caption: {caption}\n"
            source[0] += "\n".join([head, *(f"/{page}" for page in pages), "```\n"])


def _write_index(app: Sphinx, failed: Exception | None) -> None:
    # Servers of files look for this name.
    if failed is None:
        shutil.copy(Path(app.outdir, f"{root_doc}.html"), Path(app.outdir, "index.html"))
