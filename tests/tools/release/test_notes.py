import tomllib

import pytest
import yaml

from tools.release.notes import ROOT, notes

CHANGES = """\
# Changelog

The format.

## 0.3.0 - 2027-01-02

### Added

- A thing.

## 0.2.0 - 2026-12-01

- An older one.

## 0.1.0
"""


@pytest.fixture
def repository(tmp_path):
    def write(version="0.3.0", chart="0.3.0", app="0.3.0"):
        (tmp_path / "charts/linkwise").mkdir(parents=True)
        (tmp_path / "pyproject.toml").write_text(f'[project]\nversion = "{version}"\n')
        text = f"version: {chart}\nappVersion: {app}\n"
        (tmp_path / "charts/linkwise/Chart.yaml").write_text(text)
        (tmp_path / "CHANGELOG.md").write_text(CHANGES)
        return tmp_path

    return write


def test_the_notes_are_the_section_of_the_version(repository):
    assert notes("v0.3.0", repository()) == "### Added\n\n- A thing.\n"


@pytest.mark.parametrize(
    ("tag", "versions", "problem"),
    [
        pytest.param("v0.3.0", {"chart": "0.2.0"}, "version of charts", id="chart"),
        pytest.param("v0.3.0", {"app": "0.2.0"}, "appVersion of charts", id="app"),
        pytest.param("v0.2.0", {}, "pyproject.toml is 0.3.0", id="package"),
        pytest.param("0.3.0", {}, "it has no v", id="no v"),
        pytest.param(
            "v0.1.0",
            dict.fromkeys(("version", "chart", "app"), "0.1.0"),
            "no section 0.1.0",
            id="empty section",
        ),
        pytest.param(
            "v0.4.0",
            dict.fromkeys(("version", "chart", "app"), "0.4.0"),
            "no section 0.4.0",
            id="no section",
        ),
    ],
)
def test_a_release_that_does_not_agree_with_itself_has_no_notes(repository, tag, versions, problem):
    with pytest.raises(ValueError, match=problem):
        notes(tag, repository(**versions))


def test_package_and_chart_of_the_repository_have_one_version():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    chart = yaml.safe_load((ROOT / "charts/linkwise/Chart.yaml").read_text(encoding="utf-8"))

    assert {chart["version"], chart["appVersion"]} == {project["version"]}
