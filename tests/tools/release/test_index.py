import json
import os
import shutil
import subprocess

import pytest

from tools.release.index import push_index

ARCHITECTURES = ("amd64", "arm64")

pytestmark = pytest.mark.skipif(
    shutil.which("buildah") is None or os.geteuid() != 0, reason="needs buildah, and root"
)


@pytest.fixture
def archives(tmp_path):
    """Archives of one image each, as machines with different processors write them."""
    (tmp_path / "Dockerfile").write_text("FROM scratch\nCOPY Dockerfile /\n")
    storage = (
        "--storage-driver=vfs", f"--root={tmp_path / 'storage'}", f"--runroot={tmp_path / 'run'}",
    )  # fmt: skip

    def build(architecture):
        archive = tmp_path / f"{architecture}.tar"
        name = f"localhost/{architecture}"
        buildah = ["buildah", *storage]
        platform = f"--platform=linux/{architecture}"
        made = [*buildah, "build", "--quiet", platform, f"--tag={name}", str(tmp_path)]
        subprocess.run(made, check=True, capture_output=True)
        pushed = [*buildah, "push", "--quiet", name, f"oci-archive:{archive}"]
        subprocess.run(pushed, check=True, capture_output=True)
        return archive

    return [build(architecture) for architecture in ARCHITECTURES]


def test_an_index_has_the_image_of_each_processor(archives, tmp_path):
    folder = tmp_path / "pushed"

    digest = push_index(f"oci:{folder}:0.1.0", archives)

    (entry,) = json.loads((folder / "index.json").read_text())["manifests"]
    assert entry["digest"] == digest
    index = json.loads((folder / "blobs/sha256" / digest.partition(":")[2]).read_text())
    found = [image["platform"]["architecture"] for image in index["manifests"]]
    assert sorted(found) == list(ARCHITECTURES)
    for image in index["manifests"]:
        assert (folder / "blobs/sha256" / image["digest"].partition(":")[2]).exists()
