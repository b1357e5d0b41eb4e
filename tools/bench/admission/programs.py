"""The Go programs for comparison, and the sender: built once and cached.

`constant` answers every review alike, `usual` is a webhook as people write them, `load` sends.
"""

import hashlib
import os
import platform
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from controlplane.binaries import BuildError, MissingError, retried

SOURCES = Path(__file__).parent / "servers"
NAMES = ("constant", "usual", "load")


def programs(say: Callable[[str], None]) -> Path:
    """Return the folder with the programs; the first time they are built, which takes minutes.

    Raises:
        MissingError: There is no Go to build them.
        BuildError: The build failed.
    """
    folder = _folder()
    if all((folder / name).exists() for name in NAMES):
        return folder
    if shutil.which("go") is None:
        raise MissingError(f"no Go to build {', '.join(NAMES)}; install Go 1.26")
    say(f"building {', '.join(NAMES)} into {folder}")
    draft = folder.with_name(f"{folder.name}.{os.getpid()}")
    draft.mkdir(parents=True)
    argv = ("go", "build", "-mod=readonly", "-o", f"{draft}/", *(f"./{name}" for name in NAMES))
    try:
        retried(lambda: _build(argv), say)
    except BuildError:
        shutil.rmtree(draft)
        raise
    shutil.rmtree(folder, ignore_errors=True)
    draft.replace(folder)
    return folder


def _build(argv: Sequence[str]) -> None:
    build = subprocess.run(argv, cwd=SOURCES, capture_output=True, text=True, check=False)  # noqa: S603
    if build.returncode:
        raise BuildError(f"go build failed:\n{build.stderr[-1000:].strip()}")


def _folder() -> Path:
    """Return the cache folder of exactly these sources."""
    digest = hashlib.sha256(f"{platform.system()} {platform.machine()}".encode())
    for path in sorted(SOURCES.rglob("*")):
        if path.is_file():
            digest.update(path.read_bytes())
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return root / "linkwise" / "bench" / digest.hexdigest()[:16]
