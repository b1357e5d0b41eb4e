"""Builds the sdist, and the wheel from it as a packager does."""

import shutil
import tarfile
import tomllib
from email import message_from_bytes
from zipfile import ZipFile

import pytest


@pytest.fixture(scope="module")
def sdist(build, clone, tmp_path_factory):
    return build(clone, tmp_path_factory.mktemp("sdist"), "sdist")


@pytest.fixture
def unpacked(sdist, tmp_path):
    with tarfile.open(sdist) as packed:
        packed.extractall(tmp_path / "unpacked", filter="data")
    (folder,) = (tmp_path / "unpacked").iterdir()
    return folder


def test_a_wheel_from_the_sdist_is_the_wheel_from_the_tree(build, unpacked, wheel, tmp_path):
    again = build(unpacked, tmp_path / "dist")

    assert again.name == wheel.name
    assert again.read_bytes() == wheel.read_bytes()


def test_the_sdist_has_the_package_and_no_tests_servers_or_ci(unpacked, clone):
    files = {str(path.relative_to(unpacked)) for path in unpacked.rglob("*") if path.is_file()}
    package = {
        str(path.relative_to(clone)) for path in (clone / "linkwise").rglob("*") if path.is_file()
    }

    about = {"CHANGELOG.md", "LICENSE", "docs/package.md", "pyproject.toml"}
    # hatchling adds both.
    assert files == package | about | {".gitignore", "PKG-INFO"}


def test_the_sdist_is_the_same_from_the_same_sources(build, sdist, clone, tmp_path):
    again = build(shutil.copytree(clone, tmp_path / "elsewhere"), tmp_path / "dist", "sdist")

    assert again.read_bytes() == sdist.read_bytes()


def test_the_wheel_describes_itself_on_a_package_index(wheel, clone):
    project = tomllib.loads((clone / "pyproject.toml").read_text())["project"]
    with ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = message_from_bytes(archive.read(name))

    page = (clone / "docs/package.md").read_text(encoding="utf-8")
    assert metadata.get_payload(decode=True).decode() == page
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert metadata.get_all("Classifier") == project["classifiers"]
    assert metadata["Author"] == "The Linkwise authors"
    assert metadata["License-File"] == "LICENSE"
    assert {*metadata.get_all("Requires-Dist")} == {*project["dependencies"]}
