"""The sizes of the page's files in the documentation are true."""

import re
from pathlib import Path

from linkwise.dashboard.feed import WAIT
from linkwise.views.render.page.assets import MODULES, STYLE

ROOT = Path(__file__).parents[3]
FILES = tuple((ROOT / "linkwise/dashboard/page").iterdir())
TEXT = (ROOT / "docs/dashboard.md").read_text()


def test_the_page_is_as_small_as_the_documentation_says():
    parts = [file for file in FILES if file.suffix in {".js", ".css"}]
    size = sum(file.stat().st_size for file in parts)
    size += sum(len(text.encode()) for text in (STYLE, *MODULES.values()))

    assert size <= 1000 * int(re.search(r"at most (\d+) kB, not compressed", TEXT)[1])


def test_scripts_import_files_of_the_page_alone():
    names = {file.name for file in FILES} | MODULES.keys()
    scripts = [*MODULES.values(), *(file.read_text() for file in FILES if file.suffix == ".js")]
    imported = {
        name for text in scripts for name in re.findall(r"(?:from|import) ?\"(.*)\";", text)
    }

    assert imported
    assert {name.removeprefix("./") for name in imported} <= names


def test_the_longest_wait_for_an_event_is_documented():
    assert f"at the latest after {WAIT:g} s" in TEXT
