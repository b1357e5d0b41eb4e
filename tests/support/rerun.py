"""A plugin of pytest that runs failed tests once more, alone, after all others.

Tests that pass then are flaky: the run passes, prints the first failures, and the lines for
`tests/FLAKY.md`. `--rerun-failed` turns it on; `make e2e` does. `RERUN_RECORD` names a file that
several runs share: they have LIMIT reruns in all.
"""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

LIMIT = 5
"""Of tests that are run again; with one more, none is."""
KNOWN = Path(__file__).parents[1] / "FLAKY.md"
_SHOWN = 9000
"""Of the output of a second run that failed [characters]."""
_PHASES = ("setup", "call", "teardown")
"""Of a test; xdist reports a process that died in another."""


def pytest_addoption(parser: pytest.Parser) -> None:
    text = f"run at most {LIMIT} failed tests again, alone, at the end"
    parser.addoption("--rerun-failed", action="store_true", help=text)


def pytest_configure(config: pytest.Config) -> None:
    # A process of xdist runs tests and does not judge the run.
    if config.option.rerun_failed and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Rerun(config))


class Rerun:
    """Collects the failed tests of a session, and decides by a second run whether it passes."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._failed: dict[str, list[pytest.TestReport]] = {}
        self._can_rerun = True
        self._flaky = False

    @property
    def _terminal(self) -> pytest.TerminalReporter:
        return self._config.pluginmanager.get_plugin("terminalreporter")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._can_rerun &= not report.failed

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed.setdefault(report.nodeid, []).append(report)
            self._can_rerun &= report.when in _PHASES

    # Last, when the processes of xdist have ended.
    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if session.exitstatus != pytest.ExitCode.TESTS_FAILED or not self._can_rerun:
            return
        record = os.environ.get("RERUN_RECORD")
        earlier = Path(record).read_text().splitlines() if record and Path(record).exists() else []
        if not 0 < len(self._failed) <= LIMIT - len(earlier):
            self._terminal.write_line(
                f"\n{len(self._failed)} failed tests are not run again: "
                f"{LIMIT - len(earlier)} of {LIMIT} reruns are left"
            )
            return
        if not self._pass_alone():
            return
        self._flaky = True
        session.exitstatus = pytest.ExitCode.OK
        for key in ("failed", "error"):
            of_no_test = [
                report
                for report in self._terminal.stats.get(key, [])
                if report.nodeid not in self._failed
            ]
            self._terminal.stats[key] = of_no_test
        self._terminal.stats["flaky"] = [reports[0] for reports in self._failed.values()]
        if record:
            with Path(record).open("a") as file:
                file.writelines(f"{name}\n" for name in self._failed)

    def _pass_alone(self) -> bool:
        """Run the failed tests in a process of their own; show its output if one fails."""
        self._terminal.write_line(f"\nrunning {len(self._failed)} failed tests again, alone")
        argv = [sys.executable, "-m", "pytest", "--tb=short", "-p", "no:cacheprovider"]
        marks = self._config.option.markexpr
        ran = subprocess.run(  # noqa: S603 - this Python.
            [*argv, *(["-m", marks] if marks else []), *self._failed],
            cwd=self._config.rootpath,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        *_, closing = ran.stdout.splitlines() or [""]
        # A test that is skipped now has not passed.
        passed = re.search(r"\b(\d+) passed\b", closing)
        if ran.returncode == 0 and passed and int(passed[1]) == len(self._failed):
            return True
        self._terminal.write_line(ran.stdout[-_SHOWN:])
        self._terminal.write_line("not all passed when they ran alone")
        return False

    def pytest_terminal_summary(self) -> None:
        if not self._flaky:
            return
        known = KNOWN.read_text(encoding="utf-8")
        self._terminal.section("tests that failed first and passed alone")
        for name, reports in self._failed.items():
            for report in reports:
                self._terminal.write_line(report.longreprtext)
                for title, text in report.sections:
                    self._terminal.write_line(f"--- {title}\n{text[-_SHOWN:]}")
            self._terminal.write_line(f"FLAKY: {name}")
            if f"`{name}`" not in known:
                self._terminal.write_line(f"to add to tests/FLAKY.md:\n{row(reports[0])}")


def row(report: pytest.TestReport) -> str:
    """Return the row of `tests/FLAKY.md` of a test that failed first."""
    crash = getattr(report.longrepr, "reprcrash", None)
    (first, *_) = (crash.message if crash else report.longreprtext).splitlines() or [""]
    failure = first.replace("|", "\\|")[:160]
    return f"| `{report.nodeid}` | {time.strftime('%Y-%m-%d', time.gmtime())} | {failure} |"
