import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from fuzz.targets import TARGETS

TESTS = Path(__file__).parents[1]
SECONDS = float(os.environ.get("FUZZ_SECONDS", "60"))
pytestmark = [
    pytest.mark.fuzz,
    pytest.mark.timeout(SECONDS + 180),
    pytest.mark.skipif(find_spec("atheris") is None, reason="atheris is for Linux on x86-64 only"),
]


@pytest.mark.parametrize("name", TARGETS)
def test_no_input_breaks_its_target(name):
    found = TESTS / "fuzz/found" / name
    argv = [sys.executable, "-m", "fuzz.drive", name, str(SECONDS), str(found)]
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    ran = subprocess.run(
        argv, env=environment, cwd=TESTS.parent, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, f"{ran.stdout}\n{ran.stderr[-2000:]}"
