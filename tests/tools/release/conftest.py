import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="session")
def clone(tmp_path_factory):
    """A copy of what git would clone: tracked files and new ones, nothing that was built."""
    git = ("git", "ls-files", "--cached", "--others", "--exclude-standard")
    listed = subprocess.run(git, cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip(f"this is no git checkout: {listed.stderr.strip()}")
    folder = tmp_path_factory.mktemp("clone")
    for name in listed.stdout.splitlines():
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    return folder


@pytest.fixture(scope="session")
def build_wheel():
    """Builds the wheel of a clone in a folder, as `make wheel` does, and returns its path."""

    def build(source, folder):
        argv = (sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder))
        made = subprocess.run(argv, cwd=source, capture_output=True, text=True, check=False)
        assert made.returncode == 0, made.stderr
        (wheel,) = folder.glob("*.whl")
        return wheel

    return build


@pytest.fixture(scope="session")
def wheel(build_wheel, clone, tmp_path_factory):
    return build_wheel(clone, tmp_path_factory.mktemp("wheel"))
