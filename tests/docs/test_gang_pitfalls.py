import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/gang-pitfalls.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| (\d+) \| [^|]+ \| ([^|]+) \| (.+) \|$", PAGE, re.MULTILINE)
NAMED = re.findall(r"`([a-z0-9_/]+/test_\w+)::(test_\w+)`", PAGE)


def test_each_row_is_there_once():
    assert [int(number) for number, _, _ in ROWS] == list(range(1, 27))


def test_each_row_is_done_or_names_the_missing_part():
    assert {stands for _, stands, _ in ROWS} <= {"yes", "part", "no"}
    assert [n for n, stands, proof in ROWS if stands == "yes" and "::test_" not in proof] == []
    assert [n for n, stands, proof in ROWS if stands != "yes" and len(proof) < 60] == []


def test_every_test_that_a_row_names_is_there():
    files = {file: (ROOT / "tests" / f"{file}.py") for file, _ in NAMED}

    assert len(NAMED) > 30
    assert [file for file, path in files.items() if not path.exists()] == []
    assert [
        name
        for file, name in NAMED
        if not re.search(rf"^(async )?def {name}\(", files[file].read_text(), re.MULTILINE)
    ] == []


def test_nothing_looks_like_a_test_and_is_none():
    assert PAGE.count("::") == len(NAMED)
