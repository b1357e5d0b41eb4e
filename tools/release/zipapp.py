"""Build the command as one file, for users who have Python and nothing else.

`python -m tools.release.zipapp WHEEL SYSTEM PYTHON...` writes `linkwise-VERSION-SYSTEM.pyz` beside
the wheel, and the same file as an archive for krew. Packages have the locked versions and hashes.
The same sources give the same bytes. It needs uv, which installs packages for other systems.
"""

import gzip
import hashlib
import io
import json
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile, ZipInfo

ROOT = Path(__file__).parents[2]
PLATFORMS = {
    "linux-amd64": "x86_64-manylinux_2_28",
    "linux-arm64": "aarch64-manylinux_2_28",
    "darwin-arm64": "aarch64-apple-darwin",
}
"""Platforms of uv by operating system and architecture as Go, and so krew, names them."""

Files = dict[str, bytes]


def build(wheel: Path, system: str, pythons: list[str]) -> Path:
    """Build the file for one system.

    Args:
        wheel: The wheel of Linkwise.
        system: A key of PLATFORMS.
        pythons: Versions such as `3.12`; each adds about 20 MB.

    Returns:
        The path of the file.
    """
    found = {
        f"cp{version.replace('.', '')}": _packages(wheel, system, version) for version in pythons
    }
    common = dict(set.intersection(*(set(files.items()) for files in found.values())))
    parts = {"any": _zipped(common, ZIP_DEFLATED)} | {
        tag: _zipped({name: files[name] for name in files.keys() - common.keys()}, ZIP_DEFLATED)
        for tag, files in found.items()
    }
    digest = hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts.values()))
    about = {"id": digest.hexdigest()[:16], "system": system, "tags": list(found)}
    whole = {f"{name}.zip": part for name, part in parts.items()} | {
        "__main__.py": (ROOT / "tools/release/main.py").read_bytes(),
        "build.json": json.dumps(about).encode(),
    }
    path = wheel.with_name("-".join([*wheel.name.split("-")[:2], system]) + ".pyz")
    path.write_bytes(b"#!/usr/bin/env python3\n" + _zipped(whole, ZIP_STORED))
    path.chmod(0o755)
    _archive(path)
    return path


def _packages(wheel: Path, system: str, version: str) -> Files:
    """Install the command for a system and a version of Python; return the files by name."""
    with TemporaryDirectory() as name:
        target = (
            *("uv", "pip", "install", "--quiet", "--no-deps", "--only-binary=:all:"),
            *(f"--target={name}", f"--python={sys.executable}"),
            *(f"--python-version={version}", f"--python-platform={PLATFORMS[system]}"),
        )
        locked = ("--require-hashes", f"--requirements={ROOT / 'requirements/command.txt'}")
        for packages in (locked, (str(wheel),)):
            subprocess.run([*target, *packages], check=True)
        # These name the machine that builds: where the wheel was, the Python of scripts, the time.
        return {
            str(path.relative_to(name)): path.read_bytes()
            for path in Path(name).rglob("*")
            if path.is_file()
            and path.relative_to(name).parts[0] not in {"bin", ".lock"}
            and path.name not in {"direct_url.json", "uv_cache.json", "RECORD"}
        }


def _zipped(files: Mapping[str, bytes], compression: int) -> bytes:
    """Return files as a zip archive with one date and one mode."""
    archive = io.BytesIO()
    with ZipFile(archive, "w", compression) as packed:
        for name in sorted(files):
            entry = ZipInfo(name)
            entry.external_attr = 0o644 << 16
            packed.writestr(entry, files[name], compression)
    return archive.getvalue()


def _archive(path: Path) -> None:
    """Write the archive that krew unpacks: the file as `kubectl-linkwise`, and the licence."""
    with (
        path.with_suffix(".tar.gz").open("wb") as file,
        gzip.GzipFile("", "wb", compresslevel=1, fileobj=file, mtime=0) as packed,
        tarfile.open(mode="w", fileobj=packed) as archive,
    ):
        for name, source in (("kubectl-linkwise", path), ("LICENSE", ROOT / "LICENSE")):
            entry = tarfile.TarInfo(name)
            data = source.read_bytes()
            entry.size, entry.mode = len(data), 0o755 if source == path else 0o644
            archive.addfile(entry, io.BytesIO(data))


if __name__ == "__main__":
    print(build(Path(sys.argv[1]), sys.argv[2], sys.argv[3:]))
