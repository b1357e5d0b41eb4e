"""Programs survive failed downloads, and nothing is built to list tests."""

import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from controlplane import binaries
from controlplane.binaries import BuildError, build_program, source_of

ROOT = Path(__file__).parents[2]
TIMEOUT = "dial tcp 192.0.2.1:443: i/o timeout"
# Fails as often as a file beside it has lines; then it writes what is asked for.
GO = f"""#!/bin/sh
here=$(dirname "$0")
echo "$@" >> "$here/calls"
if [ -s "$here/failures" ]; then
  sed -i 1d "$here/failures"
  echo '{TIMEOUT}' >&2
  exit 1
fi
while [ $# -gt 1 ]; do [ "$1" = -o ] && echo program > "$2"; shift; done
echo '{{"Dir": "/sources"}}'
"""


@pytest.fixture
def go(tmp_path, monkeypatch):
    """A Go whose next downloads fail so many times; returns its folder."""
    path = tmp_path / "go"
    path.write_text(GO)
    path.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(binaries, "PAUSE", 0)
    return lambda failures: (tmp_path / "failures").write_text("fails\n" * failures)


def test_two_failed_downloads_of_a_build_are_printed_and_tried_again(go, tmp_path):
    go(failures=2)
    said = []

    build_program(tmp_path, "example.com/etcd", tmp_path / "etcd", said.append)

    assert (tmp_path / "etcd").read_text() == "program\n"
    assert [line for line in said if TIMEOUT in line] == [
        f"attempt {number} of 3: go build example.com/etcd failed:\n{TIMEOUT}" for number in (1, 2)
    ]


def test_two_failed_downloads_of_a_source_are_tried_again(go, tmp_path):
    go(failures=2)

    assert source_of(tmp_path, "example.com/kwok", [].append) == Path("/sources")


def test_the_third_failure_ends_a_build(go, tmp_path):
    go(failures=3)
    build = partial(build_program, tmp_path, "example.com/etcd", tmp_path / "etcd", [].append)

    with pytest.raises(BuildError, match="i/o timeout"):
        build()
    assert len((tmp_path / "calls").read_text().splitlines()) == 3


@pytest.mark.parametrize(("failures", "code"), [(0, 0), (2, 0), (3, 1)])
def test_a_command_is_tried_three_times(go, monkeypatch, failures, code):
    go(failures)
    monkeypatch.setenv("RETRY_PAUSE", "0")

    ran = subprocess.run(
        [ROOT / ".ci/retry", "go", "mod"], capture_output=True, text=True, check=False
    )

    assert ran.returncode == code
    assert ran.stderr.count(TIMEOUT) == failures


def test_listing_end_to_end_tests_builds_nothing(go, tmp_path, monkeypatch):
    go(failures=0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    argv = [sys.executable, "-m", "pytest", "-m", "e2e", "--collect-only", "-q"]

    listed = subprocess.run(
        [*argv, "-p", "no:cacheprovider", "tests/e2e/test_guard.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )

    assert "tests/e2e/test_guard.py::" in listed.stdout
    assert not (tmp_path / "calls").exists()
    assert not (tmp_path / "cache").exists()
