"""An image of Debian's static busybox, made without a registry: for containers and sandboxes."""

import hashlib
import io
import json
import platform
import subprocess
import tarfile
from pathlib import Path

IMAGE = "registry.example/busybox:1"
_DEFAULT = '[ -n "$TARGET_DIR" ] || exec sleep infinity'
BUSYBOX = Path("/bin/busybox")


def write_image(path: Path) -> None:
    """Write an archive that `ctr images import` reads.

    By default the image sleeps, as a sandbox does. The init container that training-operator adds
    to a launcher ends.
    """
    layer = _tar(_layer())
    config = {
        "architecture": _ARCHITECTURES[platform.machine()],
        "os": "linux",
        "config": {"Env": ["PATH=/bin"], "Cmd": ["sh", "-c", _DEFAULT]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [IMAGE], "Layers": ["layer.tar"]}]
    files = {
        "config.json": json.dumps(config).encode(),
        "layer.tar": layer,
        "manifest.json": json.dumps(manifest).encode(),
    }
    path.write_bytes(_tar([_file(name, data) for name, data in files.items()]))


_Entry = tuple[tarfile.TarInfo, bytes]
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def _layer() -> list[_Entry]:
    listed = subprocess.run((BUSYBOX, "--list"), capture_output=True, text=True, check=True)
    links = [_link(f"bin/{name}") for name in listed.stdout.split() if name != "busybox"]
    return [_file("bin/busybox", BUSYBOX.read_bytes()), *links]


def _file(name: str, data: bytes) -> _Entry:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(data), 0o755
    return entry, data


def _link(name: str) -> _Entry:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = tarfile.SYMTYPE, "busybox"
    return entry, b""


def _tar(entries: list[_Entry]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for entry, data in entries:
            archive.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()
