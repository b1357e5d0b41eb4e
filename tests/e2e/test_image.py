"""The image, as `make image` builds it: its contents, its bill of materials, and both again."""

import gzip
import io
import json
import re
import sys
import tarfile
import tomllib
from email.parser import HeaderParser
from pathlib import PurePath

import pytest
from controlplane.manifests import ROOT
from controlplane.soak import long

from tools.release.image import build, unavailable

LOCKED = re.findall(
    r"^([a-z0-9-]+)==(\S+)", (ROOT / "requirements/image.txt").read_text(), re.MULTILINE
)
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


@pytest.fixture(scope="module")
def config(image):
    return blob(image, manifest(image)["config"]["digest"])


@pytest.fixture(scope="module")
def files(image):
    """The regular files of the image: mode, owner and content by path."""
    found = {}
    with tarfile.open(image.archive) as archive:
        for layer in manifest(image)["layers"]:
            data = gzip.decompress(archive.extractfile(path_of(layer["digest"])).read())
            with tarfile.open(fileobj=io.BytesIO(data)) as tree:
                for entry in tree:
                    if entry.isfile():
                        found[entry.name] = entry, tree.extractfile(entry).read()
    return found


def path_of(digest):
    return "blobs/" + digest.replace(":", "/")


def blob(image, digest):
    with tarfile.open(image.archive) as archive:
        return json.load(archive.extractfile(path_of(digest)))


def manifest(image):
    return blob(image, image.digest)


def normal(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def metadata(text):
    fields = HeaderParser().parsestr(text.decode())
    return normal(fields["Name"] or fields["Package"]), fields["Version"]


def installed(files, pattern):
    """Return the names and versions in the files that match a pattern."""
    return {metadata(data) for name, (_, data) in files.items() if PurePath(name).match(pattern)}


def test_image_runs_as_a_user_without_rights(config, files):
    assert config["config"]["User"] == "65532:65532"
    assert [name for name, (entry, _) in files.items() if entry.mode & 0o6000] == []
    writable = [name for name, (entry, _) in files.items() if entry.mode & 0o022 or entry.uid]
    assert writable == []


def test_image_has_the_locked_packages_and_no_tools(files):
    packages = installed(files, "opt/linkwise/*.dist-info/METADATA")

    assert packages <= set(LOCKED)
    assert {name for name, _ in packages} == {name for name, _ in LOCKED}
    modules = {name.split("/")[2] for name in files if name.startswith("opt/linkwise/")}
    assert modules >= {"webhook", "scorer", "certs", "agent", "dashboard", "numpy"}
    assert modules >= {"linkwise"}
    assert not {"tests", "tools", "typer", "rich", "kubernetes_asyncio"} & modules
    left_out = ("opt/linkwise/linkwise/cli", "opt/linkwise/linkwise/replay")
    assert not [name for name in files if name.startswith(left_out)]
    programs = {PurePath(name).name for name in files if "bin" in PurePath(name).parts}
    assert programs >= {f"python3.{sys.version_info[1]}", "dash"}
    assert not {"pip", "pip3", "gcc", "apt", "apt-get", "curl"} & programs


def test_image_names_nothing_of_the_machine_that_built_it(files):
    assert not [name for name in files if name.startswith(("etc/apt", "var/lib/apt", "wheels"))]
    for name in ("etc/hostname", "etc/hosts", "etc/resolv.conf"):
        assert files.get(name, (None, b""))[1] == b""


def test_image_has_compiled_each_module_of_ours(files):
    sources = [PurePath(name) for name in files if re.match(r"opt/linkwise/\w+/.*\.py$", name)]
    ours = [path for path in sources if (ROOT / path.relative_to("opt/linkwise")).exists()]

    assert len(ours) > 200
    assert [
        path for path in ours
        if not any(name.match(f"{path.stem}.cpython-*.pyc") for name in compiled(files, path))
    ] == []  # fmt: skip


def compiled(files, source):
    folder = f"{source.parent}/__pycache__/"
    return [PurePath(name) for name in files if name.startswith(folder)]


def test_bill_of_materials_names_what_is_installed_and_the_image(image, files):
    bill = json.loads(image.bill.read_text())

    assert bill["metadata"]["component"]["version"] == VERSION
    digest = bill["metadata"]["component"]["hashes"][0]["content"]
    assert image.digest == f"sha256:{digest}"
    components = {
        kind: {(normal(each["name"]), each["version"]) for each in listed}
        for kind in ("pypi", "deb")
        if (listed := [one for one in bill["components"] if f"pkg:{kind}/" in one["purl"]])
    }
    assert components["pypi"] == installed(files, "opt/linkwise/*.dist-info/METADATA")
    assert components["deb"] == installed(files, "var/lib/dpkg/status.d/*")


def test_bill_of_materials_has_the_locked_hashes(image):
    bill = json.loads(image.bill.read_text())
    locked = set(re.findall(r"--hash=sha256:(\w+)", (ROOT / "requirements/image.txt").read_text()))

    hashes = [each["hashes"][0]["content"] for each in bill["components"] if "pypi" in each["purl"]]

    assert hashes
    assert set(hashes) <= locked


@long
def test_same_sources_build_the_same_image_and_bill(image, tmp_path):
    again = build(tmp_path)

    assert again.digest == image.digest
    assert again.bill.read_bytes() == image.bill.read_bytes()


def test_machine_without_buildah_is_reported_in_one_line(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))

    assert unavailable() == "an image needs buildah and mmdebstrap and dpkg-deb"
