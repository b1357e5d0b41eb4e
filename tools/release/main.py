"""The first module of the command as one file: unpack the packages once, then run the command.

Python cannot load extension modules from an archive. This module runs on old Pythons, too, so that
an unsupported one is reported in one line.
"""

import io
import json
import os
import platform
import shutil
import sys
import tempfile
import zipfile
from pathlib import Path

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def unpack(build_id: str, tag: str) -> Path:
    """Return the folder with the packages for a Python; unpack them if they are not there."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "linkwise"
    folder = cache / f"{build_id}-{tag}"
    if folder.is_dir():
        return folder
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    unpacked = tempfile.mkdtemp(dir=str(cache))
    try:
        for name in ("any.zip", f"{tag}.zip"):
            with zipfile.ZipFile(io.BytesIO(read(name))) as packages:
                packages.extractall(unpacked)
        # Another process may have been faster.
        if not folder.is_dir():
            Path(unpacked).rename(folder)
    finally:
        shutil.rmtree(unpacked, ignore_errors=True)
    return folder


def read(name: str) -> bytes:
    """Return an entry of this file."""
    return __loader__.get_data(name)


def start() -> Path:
    """Return the folder with the packages; exit with one line where this Python has none."""
    build = json.loads(read("build.json").decode())
    system, machine = platform.system().lower(), platform.machine()
    here = f"{system}-{ARCHITECTURES.get(machine, machine)}"
    tag = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    if here != build["system"] or tag not in build["tags"]:
        pythons = " or ".join(f"{each[2]}.{each[3:]}" for each in build["tags"])
        sys.exit(
            f"linkwise: this file needs {build['system']} and Python {pythons}; this is {here} and "
            f"Python {platform.python_version()}. Run it with another Python (pythonX.Y "
            f"{sys.argv[0]}), or take the file for this system."
        )
    try:
        return unpack(build["id"], tag)
    except OSError as error:
        sys.exit(
            f"linkwise: the packages cannot be unpacked: {error}. Set XDG_CACHE_HOME to a folder "
            "that can be written."
        )


sys.path.insert(0, os.fspath(start()))

from linkwise.cli.__main__ import main  # noqa: E402 - it is in that folder

main()
