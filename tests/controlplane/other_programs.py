"""Programs of other projects that run beside Linkwise: where they lie, and how they are built."""

import shutil
from functools import partial
from pathlib import Path

from controlplane.binaries import HERE, Binaries, Make, Say, build_program, built, source_of

KUEUE = "kueue"
KUEUE_CONFIG = "kueue-config"
"""Folder of the kustomizations of its installation."""
_KUEUE = HERE / "kueue"


def other_binaries(say: Say) -> Binaries:
    """Return Kueue and the manifests of its installation, after building what is missing.

    The first time takes about two minutes on two cores, where a control plane was built before.

    Args:
        say: Takes one line for people at a time.

    Raises:
        MissingError: A program is missing, and there is no Go to build it.
        BuildError: Its build failed.
    """
    parts: dict[str, Make] = {
        KUEUE: partial(build_program, _KUEUE, "sigs.k8s.io/kueue/cmd/kueue"),
        KUEUE_CONFIG: _copy_kueue_config,
    }
    return built("kueue", (_KUEUE,), parts, say)


def _copy_kueue_config(path: Path, _: Say) -> None:
    config = source_of(_KUEUE, "sigs.k8s.io/kueue") / "config"
    shutil.copytree(config, path, copy_function=shutil.copyfile)
