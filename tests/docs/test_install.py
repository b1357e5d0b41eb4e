"""Installs the command as the README says, where nothing else of ours is."""

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
EVERY_MODULE = """\
import cli, importlib, pkgutil
for one in pkgutil.walk_packages(cli.__path__, "cli."):
    importlib.import_module(one.name)
"""


def call(*argv, cwd="/"):
    return subprocess.run(argv, cwd=cwd, capture_output=True, text=True, check=False)  # noqa: S603


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """A copy of what git would clone: tracked files and new ones, nothing that was built."""
    git = shutil.which("git")
    listed = call(git, "ls-files", "--cached", "--others", "--exclude-standard", cwd=ROOT)
    if listed.returncode:
        pytest.skip(f"this is no git checkout: {listed.stderr.strip()}")
    folder = tmp_path_factory.mktemp("clone")
    for name in listed.stdout.splitlines():
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def installed(clone, tmp_path_factory):
    """The programs of an environment of its own, as pipx and uv make one."""
    folder = tmp_path_factory.mktemp("environment")
    assert call(sys.executable, "-m", "venv", str(folder)).returncode == 0
    pip = [str(folder / "bin/pip"), "--disable-pip-version-check", "install", "--retries=1"]
    made = call(*pip, "--quiet", ".", cwd=clone)
    if made.returncode and "connection broken" in made.stderr:
        pytest.skip("the package registry cannot be reached, so nothing can be installed")
    assert made.returncode == 0, made.stderr
    return folder / "bin"


def test_the_readme_installs_the_command_without_extras():
    assert "\npipx install .\n" in README
    assert "uv tool install ." in README


@pytest.mark.parametrize("name", ["linkwise", "kubectl-linkwise"])
def test_the_installed_command_starts(installed, name):
    shown = call(str(installed / name), "--version")

    assert (shown.returncode, shown.stderr) == (0, "")
    assert VERSION in shown.stdout


def test_the_installation_has_what_every_command_imports(installed):
    ran = call(str(installed / "python"), "-c", EVERY_MODULE)

    assert (ran.returncode, ran.stderr) == (0, "")


def test_installed_command_places_a_gang_on_catalogue_machines(installed, clone):
    arguments = ("simulate", "docs/demo/gang.yaml", "--cluster", "docs/demo/cluster.yaml")
    ran = call(str(installed / "linkwise"), *arguments, cwd=clone)

    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.startswith("placed gang default/mpijob-vgg16 on dgx-0\n")
