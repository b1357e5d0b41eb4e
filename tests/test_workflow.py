import re
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
WORKFLOW = ROOT / ".github/workflows/ci.yml"
TEXT = WORKFLOW.read_text(encoding="utf-8")
JOBS = yaml.safe_load(TEXT)["jobs"]
STEPS = [step for job in JOBS.values() for step in job["steps"]]
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
TARGETS = set(re.findall(r"^([a-z0-9]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def test_actions_are_pinned_by_a_commit_and_name_its_version():
    used = [step["uses"] for step in STEPS if "uses" in step]

    assert used
    pinned = re.findall(r"uses: [\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$", TEXT, re.MULTILINE)
    assert len(pinned) == len(used)


def test_workflow_may_only_read_and_keeps_no_credentials():
    assert yaml.safe_load(TEXT)["permissions"] == {"contents": "read"}
    checkouts = [step for step in STEPS if "checkout" in step.get("uses", "")]
    assert all(step["with"] == {"persist-credentials": False} for step in checkouts)
    assert all("timeout-minutes" in job for job in JOBS.values())


def test_every_other_step_is_a_make_target():
    commands = [step["run"] for step in STEPS if "run" in step]

    assert {command.split()[0] for command in commands} == {"make"}
    assert {command.split()[1] for command in commands} <= TARGETS


def test_make_targets_for_contributors_exist():
    named = set(re.findall(r"`make ([a-z0-9]+)", CONTRIBUTING))

    assert named
    assert named <= TARGETS
