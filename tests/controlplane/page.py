"""Run the command blocks of a document as they are printed."""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from controlplane.plane import ControlPlane
from support.printed import blocks


@dataclass(frozen=True, slots=True)
class Page:
    """A document below the root of the repository."""

    plane: ControlPlane
    path: str

    def run(self, number: int, **variables: str) -> str:
        """Run all commands of a block; return their output.

        Args:
            number: Index among the blocks that begin with kubectl.
            variables: Of the shell.
        """
        block = [text for text in blocks(self.path) if text.startswith("kubectl")][number]
        folder = Path(self.plane.site.binaries["kubectl"]).parent
        path = f"{folder}:{os.environ['PATH']}"
        environment = {**os.environ, "KUBECONFIG": str(self.plane.kubeconfig), "PATH": path}
        shell = ["bash", "-e", "-o", "pipefail", "-c", block]
        ran = subprocess.run(
            shell, env={**environment, **variables}, capture_output=True, text=True, check=False
        )
        assert ran.returncode == 0, f"{block}: {ran.stdout}{ran.stderr}"
        return ran.stdout
