import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
COPIED = re.findall(r"^COPY (\w+) /opt/linkwise/\1$", DOCKERFILE, re.MULTILINE)
LEFT_OUT = re.findall(r"^(linkwise/\S+)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE)
"""Paths of the package that are not in the image."""
HOOKS = {"scorer.withdraw", "webhook.selftest"}
"""The processes of the chart's hooks, in no manifest."""
STARTED = re.findall(r"([\w.]+)\.__main__", DOCKERFILE)
SERVERS = [name for name in STARTED if name not in HOOKS]
WITHOUT_OTHERS = """\
import importlib, pkgutil, runpy, sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name in ABSENT:
            raise ModuleNotFoundError(f"{name} is not in the image", name=name)

sys.meta_path.insert(0, Absent())
sys.path.insert(0, FOLDER)
"""


def pins(name):
    """Return the distributions of a file of requirements, with their versions."""
    lines = (ROOT / "requirements" / name).read_text()
    return dict(re.findall(r"^([a-z0-9-]+)==(\S+)", lines, re.MULTILINE))


def requirements(group):
    """Return the requirements of a dependency group and of the groups that it includes."""
    for entry in PYPROJECT["dependency-groups"][group]:
        if isinstance(entry, dict):
            yield from requirements(entry["include-group"])
        else:
            yield entry


def required(group):
    """Return the distributions that a dependency group names, and the groups that it includes."""
    return {re.match(r"[\w-]+", entry)[0] for entry in requirements(group)}


@pytest.fixture
def image(tmp_path):
    """Runs Python with what the image has of ours and of others', and nothing else."""
    for name in COPIED:
        shutil.copytree(ROOT / name, tmp_path / name, ignore=lambda *_: ["__pycache__"])
    for path in (path for pattern in LEFT_OUT for path in tmp_path.glob(pattern)):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    kept = pins("image.txt")
    absent = {
        module
        for module, names in packages_distributions().items()
        if not any(_normal(name) in kept for name in names)
    }
    absent |= {path.name for path in ROOT.iterdir() if (path / "__init__.py").exists()}
    absent -= set(COPIED)
    assert {"typer", "pytest", "tools"} <= absent
    assert {"linkwise/cli", "linkwise/replay"} <= {*LEFT_OUT}
    head = WITHOUT_OTHERS.replace("ABSENT", repr(absent)).replace("FOLDER", repr(str(tmp_path)))

    def run(code):
        argv = [sys.executable, "-P", "-c", head + code]
        return subprocess.run(  # noqa: S603 - our own code
            argv, env={}, cwd="/", capture_output=True, text=True, check=False
        )

    return run


def _normal(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def test_every_module_of_the_image_finds_what_it_imports(image):
    code = (
        "for name in NAMES:\n"
        "    package = importlib.import_module(name)\n"
        "    for one in pkgutil.walk_packages(package.__path__, f'{name}.'):\n"
        "        importlib.import_module(one.name)\n"
    )

    ran = image(code.replace("NAMES", repr(COPIED)))

    assert (ran.returncode, ran.stderr) == (0, "")


def test_each_process_of_manifests_and_chart_starts_from_what_the_image_has(image):
    commands = [
        container["command"]
        for folder in ("base", "agent", "dashboard")
        for path in (ROOT / "manifests" / folder).glob("*.yaml")
        for document in yaml.safe_load_all(path.read_text())
        if document["kind"] in {"Deployment", "DaemonSet"}
        for container in document["spec"]["template"]["spec"]["containers"]
    ]
    assert {*map(tuple, commands)} == {("python", "-m", name) for name in SERVERS}
    assert set(STARTED) >= HOOKS

    for name in STARTED:
        code = f"import os\nos.environ['LINKWISE_LOG_LEVEL'] = 'x'\nrunpy.run_module({name!r},"
        ran = image(f"{code} run_name='__main__')")
        # It is whole if it comes so far that it complains of its environment.
        assert ran.returncode == 2, ran.stderr
        assert ran.stderr.startswith("LINKWISE_")


def test_what_the_image_installs_is_what_servers_need_in_the_versions_that_are_tested():
    installed, tested = pins("image.txt"), pins("dev.txt")

    assert set().union(*map(required, SERVERS)) <= installed.keys()
    assert installed.items() <= tested.items()
    assert pins("command.txt").items() <= tested.items()
    assert not {"typer", "click", "rich", "pytest"} & installed.keys()
    assert "--require-hashes" in DOCKERFILE


def test_every_stage_starts_from_one_base_that_a_digest_fixes():
    base = re.findall(r"^ARG BASE=(\S+)$", DOCKERFILE, re.MULTILINE)
    stages = re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)

    assert len(base) == 1
    version = re.fullmatch(r"python:(3\.\d+)\.\d+-slim-\w+@sha256:[0-9a-f]{64}", base[0])[1]
    assert stages == ["${BUILD}", "${BASE}"]
    assert "\nARG BUILD=${BASE}\n" in DOCKERFILE
    # The tag names the digest for readers; its Python version is the one that the tests run on.
    assert PROJECT["requires-python"] == f">={version}"


def test_the_build_is_given_what_it_copies_and_nothing_else():
    rules = [
        line[1:] for line in (ROOT / ".dockerignore").read_text().split("\n") if line[:1] == "!"
    ]
    sources = re.findall(r"^COPY (?!--)(\S+) ", DOCKERFILE, re.MULTILINE)

    assert sorted(rules) == sorted(sources)
    assert set(COPIED) == {name for name in sources if (ROOT / name / "__init__.py").exists()}


def test_the_image_that_the_readme_builds_is_the_one_that_the_manifests_run():
    chart = yaml.safe_load((ROOT / "charts/linkwise/Chart.yaml").read_text())
    name = f"linkwise:{chart['appVersion']}"
    manifests = (ROOT / "manifests").glob("*/*.yaml")
    images = {
        image
        for path in manifests
        for image in re.findall(r"^ +image: (\S+)$", path.read_text(), re.MULTILINE)
    }

    assert name == f"linkwise:{PROJECT['version']}"
    assert images == {name, "kube-scheduler"}
    for text in (DOCKERFILE, (ROOT / "README.md").read_text()):
        assert f"docker build -t {name} ." in text
