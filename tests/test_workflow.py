import re
import subprocess
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
TEXTS = [workflow.read_text(encoding="utf-8") for workflow in WORKFLOWS]
ALL_JOBS = [job for text in TEXTS for job in yaml.safe_load(text)["jobs"].values()]
# The others call a workflow.
JOBS = [job for job in ALL_JOBS if "steps" in job]
STEPS = [step for job in JOBS for step in job["steps"]]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
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


def commands(workflow):
    """Return what the steps of a workflow run, with the values of their matrix."""
    path = ROOT / f".github/workflows/{workflow}.yml"
    for job in yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"].values():
        matrix = job.get("strategy", {}).get("matrix", {}).get("include", [{}])
        for run in (step["run"] for step in job["steps"] if "run" in step):
            for values in matrix:
                yield re.sub(r"\$\{\{ matrix\.(\w+) }}", lambda found, of=values: of[found[1]], run)


def test_every_step_of_ci_is_a_part_of_the_script_that_runs_all():
    script = (ROOT / ".ci/run").read_text(encoding="utf-8")
    (usage,) = re.findall(r"usage: \$0 \[([\w|]+)\]", script)

    assert {*commands("ci")} == {f".ci/run {part}" for part in usage.split("|")}
    # Each step is written once: a function that the whole calls, too.
    code = re.sub(r"^ *#.*", "", script, flags=re.MULTILINE)
    made = re.findall(r"make (\"\$1\"|\w+)", code.replace("make controlplane", ""))
    assert sorted(made) == ['"$1"', "docs", "e2e", "lint", "readers"]


def test_an_unknown_part_of_ci_is_refused():
    command = [ROOT / ".ci/run", "all"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603

    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith("usage: ")


def test_every_step_of_other_workflows_is_a_make_target():
    ran = [*commands("advisories"), *commands("versions")]

    assert {command.split()[0] for command in ran} == {"make"}
    assert {command.split()[1] for command in ran} <= TARGETS


RELEASE = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8"))
PUBLISHING = ("helm push", "uv publish", "gh release", "buildah login", "docker://")


def test_a_release_is_built_by_make_targets():
    jobs = RELEASE["jobs"]
    runs = [step.get("run", "") for name in ("files", "image") for step in jobs[name]["steps"]]
    targets = re.findall(r"(?<!git )make (?:-s )?([a-z ]+)", "\n".join(runs))

    assert set(" ".join(targets).split()) == {
        "notes", "sdist", "zipapp", "package", "krew", "sums", "image"
    }  # fmt: skip


def test_only_a_tag_publishes_and_only_after_all_tests():
    jobs = RELEASE["jobs"]
    tagged = "github.ref_type == 'tag'"
    publishing = {
        name
        for name, job in jobs.items()
        for step in job.get("steps", ())
        if any(word in step.get("run", "") for word in PUBLISHING)
    }

    assert publishing == {"publish"}
    assert (jobs["publish"]["if"], jobs["publish"]["environment"]) == (tagged, "release")
    assert jobs["publish"]["needs"] == ["files", "image"]
    assert {jobs[name]["needs"] for name in ("files", "image")} == {"ci"}
    assert jobs["ci"] == {"uses": "./.github/workflows/ci.yml"}
    # What is not published has no provenance.
    attesting = [
        step
        for name in ("files", "image")
        for step in jobs[name]["steps"]
        if "attest" in step.get("uses", "")
    ]
    assert [step["if"] for step in attesting] == [tagged] * 2


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
    stated = re.findall(r":: (3\.\d+)", "\n".join(PYPROJECT["project"]["classifiers"]))
    assert stated == pythons.split()


def test_newest_and_lowest_dependencies_are_tested_apart_from_changes():
    text = (ROOT / ".github/workflows/versions.yml").read_text(encoding="utf-8")
    workflow = yaml.safe_load(text)

    # YAML reads the key `on` as true.
    assert set(workflow[True]) == {"schedule", "workflow_dispatch"}
    assert [*commands("versions")] == ["make newest", "make lowest"]


def test_lowest_versions_run_on_the_lowest_python():
    (lowest,) = re.findall(r"^lowest:\n(.*?)^(?!\t)", MAKEFILE, re.MULTILINE | re.DOTALL)
    versions = (ROOT / ".github/workflows/versions.yml").read_text(encoding="utf-8")
    project = PYPROJECT["project"]

    (python,) = re.findall(r"^>=(3\.\d+)$", project["requires-python"])
    assert f"python{python} -m venv" in lowest
    assert f'{{versions: lowest, python: "{python}"}}' in versions
    assert "--resolution lowest-direct -r pyproject.toml --group test" in lowest


def test_every_dependency_of_the_command_has_a_floor_and_no_ceiling():
    needed = PYPROJECT["project"]["dependencies"]

    assert [each for each in needed if not re.fullmatch(r"[\w-]+>=[\d.]+", each)] == []
    # A second floor in a group would be the one that is tested.
    names = {each.partition(">")[0] for each in needed}
    grouped = [each for group in PYPROJECT["dependency-groups"].values() for each in group]
    floors = {each for each in grouped if isinstance(each, str) and each.partition(">")[0] in names}
    assert floors <= names


def test_make_help_lists_every_target():
    # Within `make test`, make would print its folder, too.
    command = ["make", "--no-print-directory", "help"]
    help_text = subprocess.check_output(command, cwd=ROOT, text=True)  # noqa: S603 - of PATH.

    listed = {line.split()[0] for line in help_text.splitlines()}
    assert listed == TARGETS - {"help"}
