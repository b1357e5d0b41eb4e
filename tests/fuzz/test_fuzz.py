import os
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from fuzz.slow import MAX_WORK, search
from fuzz.targets import TARGETS

TESTS = Path(__file__).parents[1]
SECONDS = float(os.environ.get("FUZZ_SECONDS", "60"))
pytestmark = [pytest.mark.fuzz, pytest.mark.timeout(SECONDS + 180)]


@pytest.mark.skipif(find_spec("atheris") is None, reason="atheris is for Linux on x86-64 only")
@pytest.mark.parametrize("name", sorted(TARGETS.keys() - {"slow"}))
def test_no_input_breaks_its_target(name):
    found = TESTS / "fuzz/found" / name
    argv = [sys.executable, "-m", "fuzz.drive", name, str(SECONDS), str(found)]
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    ran = subprocess.run(
        argv, env=environment, cwd=TESTS.parent, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, f"{ran.stdout}\n{ran.stderr[-2000:]}"


def test_no_review_found_by_a_search_for_slow_ones_takes_too_long():
    folder = TESTS / "fuzz"

    lines, data = search(folder / "corpus/slow", folder / "found/slow", _seeds())

    assert lines <= MAX_WORK, data


def _seeds() -> Iterator[int]:
    """Yield a seed for each input, until the time is over."""
    first = int(os.environ.get("FUZZ_SEED", "0")) or time.time_ns()
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        yield first
        first += 1
