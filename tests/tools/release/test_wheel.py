"""Builds the wheel and installs it alone into an empty environment."""

import re
import shutil
import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from urllib.request import urlopen
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parents[3]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
# An installation downloads 40 MB.
pytestmark = pytest.mark.timeout(900)
VERSION = PYPROJECT["project"]["version"]
PACKAGES = PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
EVERY_MODULE = """\
import importlib, linkwise, pkgutil
for one in pkgutil.walk_packages(linkwise.__path__, "linkwise."):
    # What a process alone needs is in the image.
    if not one.name.startswith("linkwise.runtime."):
        importlib.import_module(one.name)
"""


def call(*argv, cwd="/"):
    return subprocess.run(argv, cwd=cwd, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """The programs of an environment of its own, with the versions that every other test uses."""
    folder = tmp_path_factory.mktemp("environment")
    assert call(sys.executable, "-m", "venv", str(folder)).returncode == 0
    pip = [str(folder / "bin/pip"), "--disable-pip-version-check", "install", "--retries=1"]
    pinned = (ROOT / "requirements/command.txt").read_text(encoding="utf-8")
    constraints = folder / "constraints.txt"
    constraints.write_text("\n".join(re.findall(r"^(\S+==.+) \\$", pinned, re.MULTILINE)))
    made = call(*pip, "--quiet", "--no-compile", "-c", str(constraints), str(wheel))
    if made.returncode and "connection broken" in made.stderr:
        pytest.skip("the package registry cannot be reached, so nothing can be installed")
    assert made.returncode == 0, made.stderr
    return folder / "bin"


def test_the_readme_installs_the_wheel_without_extras():
    assert "\nmake wheel\n" in README
    assert f"\npip install dist/linkwise-{VERSION}-py3-none-any.whl " in README


def test_the_wheel_is_the_same_from_the_same_sources(build_wheel, wheel, clone, tmp_path):
    again = build_wheel(shutil.copytree(clone, tmp_path / "elsewhere"), tmp_path / "dist")

    assert again.read_bytes() == wheel.read_bytes()


def test_the_wheel_has_no_tests_and_nothing_built(wheel):
    with ZipFile(wheel) as archive:
        folders = {name.partition("/")[0] for name in archive.namelist()}

    assert folders == {*PACKAGES, f"linkwise-{VERSION}.dist-info"}


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


def test_installed_command_serves_the_live_page_with_its_modules(installed, clone):
    arguments = ("dashboard", "--cluster", "docs/demo/cluster.yaml", "--no-browser")
    command = [str(installed / "linkwise"), *arguments]
    with subprocess.Popen(command, cwd=clone, stdout=subprocess.PIPE, text=True) as served:
        try:
            url = re.search(r"http://\S+", served.stdout.readline())[0]
            found, left = set(), {"", "app.js"}
            while left:
                name = left.pop()
                found.add(name)
                with urlopen(url + name) as answer:  # noqa: S310
                    text = answer.read().decode()
                left |= set(
                    re.findall(r'(?:src|href|from)=? ?"(?:\./)?([\w.]+\.(?:js|css))"', text)
                )
                left -= found
        finally:
            served.send_signal(signal.SIGINT)
    assert served.returncode == 0
    page = {each.name for each in (ROOT / "linkwise/dashboard/page").iterdir()}
    assert found == page - {"index.html"} | {"", "base.css"}


# scorer.withdraw needs no more than the command.
@pytest.mark.parametrize("server", ["webhook", "scorer", "certs", "agent"])
def test_server_outside_the_image_names_the_remedy_in_one_line(installed, clone, server):
    ran = call(str(installed / "python"), "-m", server, cwd=clone)

    assert ran.returncode == 1
    assert ran.stderr.count("\n") == 1
    assert "is not installed" in ran.stderr
    assert "pip install -r requirements/image.txt" in ran.stderr


def test_error_of_a_server_other_than_a_missing_package_has_a_traceback(installed):
    code = "import linkwise.runtime.process.missing_package; 1 / 0"

    ran = call(str(installed / "python"), "-c", code)

    assert ran.stderr.startswith("Traceback")


def test_command_without_a_package_names_the_remedy_in_one_line(installed, clone):
    code = (
        "import sys; sys.modules['highspy'] = None; from linkwise.cli.__main__ import run; "
        "sys.exit(run(sys.argv[1:]))"
    )
    arguments = ("simulate", "docs/demo/gang.yaml", "--cluster", "docs/demo/cluster.yaml")

    ran = call(str(installed / "python"), "-c", code, *arguments, cwd=clone)

    assert ran.returncode == 2
    assert ran.stderr.count("\n") == 1
    assert "pip install --force-reinstall linkwise" in ran.stderr
