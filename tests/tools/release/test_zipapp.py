"""The command as one file, and as the plugin of kubectl that krew installs."""

import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from zipfile import ZipFile

import pytest
import yaml

from tools.release.krew import manifest
from tools.release.zipapp import PLATFORMS, build

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.skipif(shutil.which("uv") is None, reason="needs uv"),
    pytest.mark.skipif(sys.platform != "linux", reason="builds the file for Linux"),
]
SYSTEM = "linux-arm64" if os.uname().machine == "aarch64" else "linux-amd64"
PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
GANG = ("simulate", "docs/demo/gang.yaml", "--cluster", "docs/demo/cluster.yaml")


@pytest.fixture(scope="module")
def command(wheel):
    return build(wheel, SYSTEM, [PYTHON])


@pytest.fixture
def call(clone, tmp_path):
    """Runs a file with this Python and an empty environment, in a clone."""

    def run(path, *arguments, cache=tmp_path / "cache"):
        env = {"PATH": f"{Path(sys.executable).parent}:/usr/bin", "XDG_CACHE_HOME": str(cache)}
        argv = [str(path), *arguments]
        return subprocess.run(argv, cwd=clone, env=env, capture_output=True, text=True, check=False)

    return run


def rebuilt(command, folder, **changes):
    """Write the file with other entries in its build.json."""
    path = folder / "changed.pyz"
    data = io.BytesIO()
    with ZipFile(command) as source, ZipFile(data, "w") as target:
        for name in source.namelist():
            entry = source.read(name)
            if name == "build.json":
                entry = json.dumps(json.loads(entry) | changes).encode()
            target.writestr(name, entry)
    path.write_bytes(b"#!/usr/bin/env python3\n" + data.getvalue())
    path.chmod(0o755)
    return path


def test_one_file_places_a_gang_without_anything_installed(call, command):
    first, second = call(command, *GANG), call(command, *GANG)

    assert (first.returncode, first.stderr) == (0, "")
    assert first.stdout.startswith("placed gang default/mpijob-vgg16 on dgx-0\n")
    assert (second.returncode, second.stdout) == (0, first.stdout)


def test_one_file_unpacks_its_packages_once(call, command, tmp_path):
    call(command, "--version")
    [folder] = (tmp_path / "cache/linkwise").iterdir()
    marks = folder.stat()

    call(command, "--version")

    assert [each.stat() for each in (tmp_path / "cache/linkwise").iterdir()] == [marks]


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        pytest.param({"tags": ["cp39"]}, "and Python 3.9; this is", id="other Python"),
        pytest.param({"system": "plan9-amd64"}, "needs plan9-amd64", id="other system"),
    ],
)
def test_unsupported_python_is_reported_in_one_line(call, command, tmp_path, changes, complaint):
    ran = call(rebuilt(command, tmp_path, **changes), "--version")

    assert (ran.returncode, ran.stdout, ran.stderr.count("\n")) == (1, "", 1)
    assert complaint in ran.stderr


def test_cache_that_cannot_be_written_is_reported_with_the_remedy(call, command):
    ran = call(command, "--version", cache="/proc/none")

    assert (ran.returncode, ran.stderr.count("\n")) == (1, 1)
    assert "Set XDG_CACHE_HOME" in ran.stderr


def test_one_file_has_the_same_bytes_from_the_same_wheel(command, tmp_path, wheel):
    again = build(Path(shutil.copy(wheel, tmp_path)), SYSTEM, [PYTHON])

    assert again.read_bytes() == command.read_bytes()
    archives = [path.with_suffix(".tar.gz").read_bytes() for path in (command, again)]
    assert archives[0] == archives[1]


def test_manifest_of_krew_names_each_platform_with_its_hash(command, tmp_path):
    archive = command.with_suffix(".tar.gz")
    others = [
        shutil.copy(archive, tmp_path / archive.name.replace(SYSTEM, system))
        for system in PLATFORMS.keys() - {SYSTEM}
    ]

    spec = yaml.safe_load(manifest("https://downloads.example", [archive, *others]))["spec"]

    assert spec["version"] == f"v{command.name.split('-')[1]}"
    named = [each["selector"]["matchLabels"] for each in spec["platforms"]]
    assert {f"{each['os']}-{each['arch']}" for each in named} == PLATFORMS.keys()
    platform = spec["platforms"][0]
    assert platform["uri"] == f"https://downloads.example/{archive.name}"
    assert platform["sha256"] == hashlib.sha256(archive.read_bytes()).hexdigest()
    with tarfile.open(archive) as packed:
        assert packed.getnames() == [each["from"] for each in platform["files"]]
        assert packed.getmember(platform["bin"]).mode & 0o111


def test_manifest_of_krew_refuses_archives_of_two_versions(tmp_path):
    paths = [tmp_path / f"linkwise-{version}-linux-amd64.tar.gz" for version in ("1", "2")]
    for path in paths:
        path.write_bytes(b"")

    with pytest.raises(ValueError, match="archives of one version"):
        manifest("https://downloads.example", paths)


def test_plugin_of_kubectl_names_itself_so(call, command, tmp_path):
    with tarfile.open(command.with_suffix(".tar.gz")) as packed:
        packed.extractall(tmp_path / "bin", filter="data")

    ran = call(tmp_path / "bin/kubectl-linkwise", "chek")

    assert ran.returncode == 2
    assert "See kubectl linkwise --help." in ran.stderr
