"""At most five failed tests that pass alone do not fail a run; everything else does."""

import re
from pathlib import Path

import pytest
from support import rerun

pytest_plugins = ["pytester"]
ROOT = Path(__file__).parents[1]
# The first run of a test leaves a file.
PASSES_THE_SECOND_TIME = """\
import pathlib

import pytest

@pytest.fixture
def second(request):
    seen = pathlib.Path("runs-" + request.node.nodeid.replace("/", "-"))
    seen.touch() if not seen.exists() else seen.write_text("again")
    return bool(seen.read_text())
"""
FLAKY = "def test_flaky(second):\n    assert second, 'too late'\n"
MANY = "@pytest.mark.parametrize('n', range({}))\ndef test_each(n, second):\n    assert second\n"
XDIST = ("-p", "xdist", "-n", "2", "--dist", "loadfile")
HOLDS = "def test_holds():\n    pass\n"
FAILS = "def test_fails():\n    assert 1 == 2\n"
SKIPS = "def test_skips(second):\n    if second: pytest.skip('no program')\n    assert second\n"
IN_SETUP = """\
@pytest.fixture
def plane(second):
    assert second, 'no leader'
def test_flaky(plane):
    pass
"""
IN_TEARDOWN = """\
@pytest.fixture
def plane(second):
    yield
    assert second, 'not stopped'
def test_flaky(plane):
    pass
"""
DIES = "def test_dies(second):\n    import os\n    if not second: os._exit(1)\n"


@pytest.fixture
def run(pytester, monkeypatch):
    """Runs modules of these texts with the plugin; returns the exit code, and what was printed."""
    monkeypatch.delenv("RERUN_RECORD", raising=False)
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")

    def run(*texts, options=()):
        for path in pytester.path.glob("runs-*"):
            path.unlink()
        for number, text in enumerate(texts):
            (pytester.path / f"test_{number}.py").write_text(PASSES_THE_SECOND_TIME + text)
        result = pytester.runpytest_inprocess(
            *("-p", "support.rerun", "--rerun-failed", "-p", "no:cacheprovider"),
            *("-W", "ignore::pytest.PytestAssertRewriteWarning", *options),
        )
        return int(result.ret), result.stdout.str()

    return run


@pytest.mark.parametrize(
    ("text", "failure", "counted"),
    [
        pytest.param(FLAKY, "AssertionError: too late", "1 passed, 1 flaky", id="in the test"),
        pytest.param(IN_SETUP, "AssertionError: no leader", "1 passed, 1 flaky", id="in a fixture"),
        pytest.param(
            IN_TEARDOWN, "AssertionError: not stopped", "2 passed, 1 flaky", id="at the end"
        ),
    ],
)
def test_a_test_that_passes_alone_is_flaky(run, text, failure, counted):
    code, output = run(HOLDS, text)

    assert code == 0
    assert f"E   {failure}" in output.replace("E       ", "E   ")
    assert "FLAKY: test_1.py::test_flaky\n" in output
    assert re.search(rf"\| `test_1.py::test_flaky` \| \d{{4}}-\d\d-\d\d \| {failure}", output)
    assert counted in output.splitlines()[-1]


def test_two_processes_of_xdist_are_judged_once(run):
    code, output = run(HOLDS, FLAKY, options=XDIST)

    assert code == 0
    assert output.count("FLAKY: test_1.py::test_flaky\n") == 1
    assert "1 passed, 1 flaky" in output.splitlines()[-1]


def test_five_are_run_again_and_a_sixth_fails(run):
    assert run(MANY.format(5))[0] == 0

    code, output = run(MANY.format(6))

    assert code == 1
    assert "6 failed tests are not run again: 5 of 5 reruns are left" in output


def test_several_runs_share_five(run, pytester, monkeypatch):
    monkeypatch.setenv("RERUN_RECORD", str(pytester.path / "record"))
    assert run(MANY.format(4))[0] == 0

    code, output = run(HOLDS, MANY.format(2))

    assert code == 1
    assert "2 failed tests are not run again: 1 of 5 reruns are left" in output
    assert (pytester.path / "record").read_text().splitlines() == [
        f"test_0.py::test_each[{number}]" for number in range(4)
    ]


@pytest.mark.parametrize(
    ("text", "code", "line"),
    [
        pytest.param(FLAKY + FAILS, 1, "2 failed", id="one fails again"),
        pytest.param(SKIPS, 1, "1 failed", id="skipped alone"),
        pytest.param("import missing\n", 2, "1 error", id="not collected"),
        pytest.param("", 5, "no tests ran", id="no test"),
    ],
)
def test_everything_else_fails(run, text, code, line):
    found, output = run(text)

    assert found == code
    assert line in output.splitlines()[-1]
    assert "FLAKY" not in output


def test_a_process_that_dies_fails(run):
    code, output = run(FLAKY, DIES, options=XDIST)

    assert code == 1
    assert "FLAKY" not in output


def test_known_flaky_tests_exist_and_have_a_date_and_a_failure():
    header, rows = rerun.KNOWN.read_text(encoding="utf-8").split("|---|---|---|\n")

    assert header.endswith("| test | first seen | failure |\n")
    for row in rows.splitlines():
        found = re.fullmatch(r"\| `(tests/e2e/[^:]+)::(\w+)[^`]*` \| \d{4}-\d\d-\d\d \| .+ \|", row)
        assert found, row
        assert f"def {found[2]}(" in (ROOT / found[1]).read_text(encoding="utf-8"), row
