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
def build():
    """Builds the wheel or the sdist of a clone in a folder, as make does, and returns its path."""

    def run(source, folder, target="wheel"):
        argv = (sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(folder))
        made = subprocess.run(argv, cwd=source, capture_output=True, text=True, check=False)
        assert made.returncode == 0, made.stderr
        (path,) = folder.iterdir()
        return path

    return run


@pytest.fixture(scope="session")
def wheel(build, clone, tmp_path_factory):
    return build(clone, tmp_path_factory.mktemp("wheel"))
