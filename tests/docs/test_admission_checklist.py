import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/admission-checklist.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| (\d+) \| [^|]+ \| ([^|]+) \| (.+) \|$", PAGE, re.MULTILINE)


def test_each_of_the_sixty_rows_is_there_once():
    assert sorted(int(number) for number, _, _ in ROWS) == list(range(1, 61))


def test_each_row_is_done_or_names_the_missing_part():
    assert {stands for _, stands, _ in ROWS} <= {"yes", "part", "no"}
    assert [number for number, _, proof in ROWS if len(proof) < 20] == []


def test_every_file_of_tests_that_a_row_names_is_there():
    named = re.findall(r"`([a-z0-9_/]+/test_\w+)`", PAGE)

    assert named
    assert [name for name in named if not (ROOT / "tests" / f"{name}.py").exists()] == []
