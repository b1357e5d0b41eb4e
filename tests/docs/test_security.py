import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "SECURITY.md").read_text(encoding="utf-8")


def test_every_claim_names_tests_and_not_files_and_each_is_there():
    named = re.findall(r"`([\w/]+\.py)::(test_\w+)`", PAGE)

    assert named
    assert len(named) == PAGE.count(".py")
    assert [one for one in named if f"def {one[1]}(" not in text_of(one[0])] == []


def text_of(path):
    return (ROOT / "tests" / path).read_text(encoding="utf-8")


def test_every_claim_names_its_proof():
    claims = re.findall(r"^\| ([A-Z][^|]+) \| ([^|]+) \|$", PAGE, re.MULTILINE)

    assert claims
    assert [claim for claim, proof in claims if "::test_" not in proof] == []
