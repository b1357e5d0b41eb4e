"""The drawing of the folders is that of the tree."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
DRAWING = PAGE.partition("## The house")[2].split("```")[1]


def test_each_room_of_the_package_is_drawn():
    rooms = {path.parent.name for path in (ROOT / "linkwise").glob("*/__init__.py")}

    assert set(re.findall(r"^  (\w+)/ ", DRAWING, re.MULTILINE)) == rooms


def test_each_process_and_folder_is_drawn():
    drawn = set(re.findall(r"(?:^|/  )(\w+)(?=/)", DRAWING, re.MULTILINE))
    processes = {path.parent.name for path in ROOT.glob("*/__main__.py")}

    assert len(processes) == 5
    assert processes < drawn
    assert [name for name in drawn if not (ROOT / name).is_dir()] == []


def test_files_that_the_page_names_are_there():
    named = re.findall(r"`((?:linkwise|planning|webhook|scorer|certs|agent)/[\w/]+\.py)`", PAGE)

    assert named
    assert [
        name
        for name in named
        if not any((ROOT / folder / name).exists() for folder in ("", "linkwise"))
    ] == []
