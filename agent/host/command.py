"""Commands of the node, run in its file system."""

import sys
from collections.abc import Sequence
from pathlib import Path

# `os.execvp` imports `warnings`, which cannot be found below the other root.
_IN_ROOT = """
import os, sys, warnings
os.chroot(sys.argv[1])
os.chdir("/")
try:
    os.execvp(sys.argv[2], sys.argv[2:])
except OSError as error:
    sys.exit(f"{sys.argv[2]} cannot be started: {error.strerror}")
"""


def host_command(root: Path, command: Sequence[str]) -> tuple[str, ...]:
    """Return the command that runs a command of the node.

    Hardened images have no program `chroot`, so Python changes the root.

    Args:
        root: Root of the node's file system, as this process sees it.
        command: The program, searched in `PATH` on the node, and its arguments.
    """
    if root == Path("/"):
        return tuple(command)
    return (sys.executable, "-c", _IN_ROOT, str(root), *command)
