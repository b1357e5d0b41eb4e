"""The programs that render and check a chart."""

import shutil
import subprocess
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from controlplane.binaries import (
    HERE,
    Binaries,
    MissingError,
    Say,
    already_built,
    build_program,
    built,
)

_HELM, _SCORE = HERE / "helm", HERE / "kube-score"
_MODULES = (_HELM, _SCORE)
_KIND = "charts"
_PROGRAMS = {
    "helm": (_HELM, "helm.sh/helm/v4/cmd/helm"),
    "kubeconform": (_HELM, "github.com/yannh/kubeconform/cmd/kubeconform"),
    "kube-score": (_SCORE, "github.com/zegl/kube-score/cmd/kube-score"),
}
"""The folder of each program's module, and its package."""


def chart_binaries(say: Say) -> Binaries:
    """Return Helm, kubeconform and kube-score, after building those that are missing.

    The first time takes about four minutes on two cores, where a control plane was built before.

    Args:
        say: Takes one line for people at a time.

    Raises:
        MissingError: A program is missing, and there is no Go to build it.
        BuildError: Its build failed.
    """
    parts = {name: partial(build_program, *where) for name, where in _PROGRAMS.items()}
    return built(_KIND, _MODULES, parts, say)


def built_helm() -> Path | None:
    """Return Helm if it is built."""
    return already_built(_KIND, _MODULES, "helm")


def promtool(say: Say) -> Path:
    """Return promtool, after taking it from Debian's package where it is missing.

    Raises:
        MissingError: It is missing, and apt cannot download the package.
    """
    return built(_KIND, _MODULES, {"promtool": _extract_promtool}, say).paths["promtool"]


def _extract_promtool(path: Path, _: Say) -> None:
    """Extract it without installing the package, which would start a server."""
    with TemporaryDirectory() as folder:
        _run(["apt-get", "-o", "Acquire::Retries=3", "download", "prometheus"], folder)
        (package,) = Path(folder).glob("*.deb")
        _run(["dpkg", "-x", str(package), "files"], folder)
        shutil.copy(Path(folder, "files/usr/bin/promtool"), path)


def _run(argv: Sequence[str], folder: str) -> None:
    try:
        ran = subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise MissingError(f"no {argv[0]}, which is needed for promtool") from None
    if ran.returncode:
        raise MissingError(f"{' '.join(argv)} failed: {ran.stderr.strip()}")
