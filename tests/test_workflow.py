import re
import subprocess
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
TEXTS = [workflow.read_text(encoding="utf-8") for workflow in WORKFLOWS]
JOBS = [job for text in TEXTS for job in yaml.safe_load(text)["jobs"].values()]
STEPS = [step for job in JOBS for step in job["steps"]]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
TARGETS = set(re.findall(r"^([a-z0-9]+):", MAKEFILE, re.MULTILINE))


def test_actions_are_pinned_by_a_commit_and_name_its_version():
    used = [step["uses"] for step in STEPS if "uses" in step]

    assert used
    pinned = re.findall(
        r"uses: [\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$", "".join(TEXTS), re.MULTILINE
    )
    assert len(pinned) == len(used)


def test_workflow_may_only_read_and_keeps_no_credentials():
    assert all(yaml.safe_load(text)["permissions"] == {"contents": "read"} for text in TEXTS)
    checkouts = [step for step in STEPS if "checkout" in step.get("uses", "")]
    assert all(step["with"] == {"persist-credentials": False} for step in checkouts)
    assert all("timeout-minutes" in job for job in JOBS)


def test_every_other_step_is_a_make_target():
    commands = [step["run"] for step in STEPS if "run" in step]

    assert {command.split()[0] for command in commands} == {"make"}
    assert {command.split()[1] for command in commands} <= TARGETS


def test_make_targets_for_contributors_exist():
    named = set(re.findall(r"`make ([a-z0-9]+)", CONTRIBUTING))

    assert named
    assert named <= TARGETS


def test_locked_packages_are_audited_each_day():
    audit = (ROOT / ".github/workflows/advisories.yml").read_text(encoding="utf-8")

    assert re.search(r'cron: "\d+ \d+ \* \* \*"', audit)
    assert "make advisories" in audit


def test_new_releases_are_locked_after_a_waiting_time():
    (lock,) = re.findall(r"^LOCK = (.*)$", MAKEFILE, re.MULTILINE)

    assert "--exclude-newer $(shell date -u -d '7 days ago' +%F)" in lock


def test_unit_tests_run_on_every_python_of_the_command():
    (pythons,) = re.findall(r"^PYTHONS := (.*)$", MAKEFILE, re.MULTILINE)
    tests = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))["jobs"]

    assert tests["test"]["strategy"]["matrix"]["python"] == pythons.split()


def test_newest_dependencies_are_tested_apart_from_changes():
    newest = yaml.safe_load((ROOT / ".github/workflows/newest.yml").read_text(encoding="utf-8"))

    # YAML reads the key `on` as true.
    assert set(newest[True]) == {"schedule", "workflow_dispatch"}
    assert "make newest" in [step.get("run") for step in newest["jobs"]["test"]["steps"]]


def test_make_help_lists_every_target():
    # Within `make test`, make would print its folder, too.
    command = ["make", "--no-print-directory", "help"]
    help_text = subprocess.check_output(command, cwd=ROOT, text=True)  # noqa: S603 - of PATH.

    listed = {line.split()[0] for line in help_text.splitlines()}
    assert listed == TARGETS - {"help"}
