"""Build the image and its bill of materials without a registry, from packages of Debian.

`python -m tools.release.image FOLDER` writes `linkwise-VERSION-image.tar`, an archive that
containerd, Podman and skopeo read, and `linkwise-VERSION-image.cdx.json` beside it. It prints the
digest of the image. It needs root, buildah and mmdebstrap on a Debian whose Python is the one that
runs it.

The Dockerfile is the same as for `docker build`. The base has Python and nothing that Python does
not need. The same sources and the same packages of Debian give the same digest.
"""

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from platform import freedesktop_os_release
from tempfile import TemporaryDirectory

from tools.release.sbom import bill_of_materials

ROOT = Path(__file__).parents[2]
PROGRAMS = ("buildah", "mmdebstrap", "dpkg-deb")
DEBIAN = "python3-minimal,libpython3-stdlib,python-is-python3,libstdc++6,netbase,base-files,dash"
"""dash is for the RUN lines of the Dockerfile; libstdc++6 for packages in C++."""
DATE = os.environ.get("SOURCE_DATE_EPOCH", "0")
"""Of all files and of the image, in seconds since 1970."""
# Scanners of images find the list of packages there.
_HOOK = """\
mkdir -p "$1/var/lib/dpkg/status.d"
for deb in "$1"/var/cache/apt/archives/*.deb; do
  package=$(dpkg-deb --field "$deb" Package)
  dpkg-deb --field "$deb" > "$1/var/lib/dpkg/status.d/$package"
  cp "$deb" {debs}
done
"""
_BASE = "FROM scratch\nADD base.tar /\n"
_OF_THIS_MACHINE = (
    "./etc/apt", "./etc/hostname", "./etc/resolv.conf", "./var/cache/apt", "./var/lib/apt",
)  # fmt: skip
_BUILD = """\
FROM localhost/base
COPY pip /usr/lib/python3/dist-packages/pip
COPY pip.conf /etc/
COPY wheels /wheels
"""


def unavailable() -> str:
    """Return why no image can be built on this machine, in one line; empty where one can."""
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if os.geteuid() != 0:
        return "an image is built as root"
    return f"an image needs {' and '.join(missing)}" if missing else ""


@dataclass(frozen=True, slots=True)
class Image:
    """A built image."""

    archive: Path
    """An OCI archive with one image."""
    bill: Path
    """CycloneDX."""
    digest: str


def build(folder: Path) -> Image:
    """Build the image and its bill of materials.

    Args:
        folder: Where to write them.

    Raises:
        subprocess.CalledProcessError: A program failed; it wrote why.
    """
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    name = f"linkwise-{version}-image"
    folder.mkdir(parents=True, exist_ok=True)
    archive, bom = folder / f"{name}.tar", folder / f"{name}.cdx.json"
    with TemporaryDirectory() as temporary:
        work = Path(temporary)
        _base(work)
        _wheels(work)
        buildah = _Buildah(work)
        try:
            buildah.build("base", _BASE, work)
            buildah.build("build", _BUILD, work)
            buildah.build(
                "linkwise", (ROOT / "Dockerfile").read_text(), ROOT,
                "--build-arg=BASE=localhost/base", "--build-arg=BUILD=localhost/build",
            )  # fmt: skip
            archive.unlink(missing_ok=True)
            digest = buildah.push("linkwise", f"oci-archive:{archive}:{version}")
        finally:
            buildah.remove()
        parts = (work / "debs").glob("*.deb"), (work / "wheels").glob("*.whl")
        bom.write_text(bill_of_materials(version, digest, *parts))
    return Image(archive, bom, digest)


def _base(work: Path) -> None:
    """Unpack packages of Debian, in the versions of this machine's apt sources, into an archive."""
    (work / "debs").mkdir()
    hook = work / "hook"
    hook.write_text("#!/bin/sh -e\n" + _HOOK.format(debs=work / "debs"))
    hook.chmod(0o755)
    suite, tree = freedesktop_os_release()["VERSION_CODENAME"], work / "base.tar"
    _run(
        "mmdebstrap", "--quiet", "--mode=root", "--variant=extract", f"--include={DEBIAN}",
        '--aptopt=Acquire::Retries "3"', f"--extract-hook={hook}", suite, str(tree),
    )  # fmt: skip
    # These name this machine and its mirrors.
    _run("tar", "--delete", f"--file={tree}", *_OF_THIS_MACHINE)


def _wheels(work: Path) -> None:
    """Download the locked packages, and take along the pip that will install them."""
    _run(
        str(ROOT / ".ci/retry"),
        sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:",
        "--require-hashes", f"--requirement={ROOT / 'requirements/image.txt'}",
        f"--dest={work / 'wheels'}",
    )  # fmt: skip
    spec = find_spec("pip")
    if spec is None or spec.origin is None:
        raise ValueError("pip is not installed in the Python that builds the image")
    shutil.copytree(
        Path(spec.origin).parent, work / "pip", ignore=shutil.ignore_patterns("__pycache__")
    )
    (work / "pip.conf").write_text(
        "[global]\nno-index = true\nfind-links = /wheels\n[install]\nroot-user-action = ignore\n"
    )


class _Buildah:
    """buildah with a storage of its own, which leaves nothing on this machine."""

    def __init__(self, work: Path) -> None:
        self._work = work
        self._argv = (
            "buildah", "--storage-driver=vfs",
            f"--root={work / 'storage'}", f"--runroot={work / 'run'}",
        )  # fmt: skip

    def build(self, name: str, dockerfile: str, context: Path, *options: str) -> None:
        """Build an image from the text of a Dockerfile."""
        file = self._work / f"{name}.Dockerfile"
        file.write_text(dockerfile)
        _run(
            *self._argv, "build", "--quiet", "--isolation=chroot", "--pull-never",
            "--format=oci", f"--timestamp={DATE}", f"--tag=localhost/{name}",
            f"--file={file}", *options, str(context),
        )  # fmt: skip

    def push(self, name: str, target: str) -> str:
        """Copy an image; return its digest."""
        digest = self._work / "digest"
        _run(*self._argv, "push", "--quiet", f"--digestfile={digest}", f"localhost/{name}", target)
        return digest.read_text().strip()

    def remove(self) -> None:
        """Remove all images, and what buildah has mounted."""
        _run(*self._argv, "rmi", "--all", "--force")


def _run(*argv: str) -> None:
    """Run a program; what it writes to standard output is dropped."""
    env = os.environ | {"SOURCE_DATE_EPOCH": DATE}
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, env=env)


def main(arguments: Sequence[str]) -> int:
    """Build the image in a folder, and print its digest."""
    if reason := unavailable():
        print(f"{reason}. With Docker: docker build -t linkwise .", file=sys.stderr)
        return 1
    image = build(Path(arguments[0]))
    print(image.digest)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
