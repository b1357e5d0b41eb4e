"""Programs of other projects that run beside Linkwise: where they lie, and how they are built."""

import re
import shutil
import subprocess
from functools import partial
from pathlib import Path

from controlplane.binaries import HERE, Binaries, Make, Say, build_program, built, source_of

KUEUE = "kueue"
KUEUE_CONFIG = "kueue-config"
"""Folder of the kustomizations of its installation."""
COSCHEDULING = "coscheduling"
"""A kube-scheduler with the plugin of scheduler-plugins."""
POD_GROUPS = "pod-groups"
"""Folder of the definition of its PodGroups."""
KARPENTER = "karpenter"
AUTOSCALER_CRDS = "autoscaler-crds"
"""Folder of the definitions of ProvisioningRequests and of Karpenter's kinds."""
CERT_MANAGER = "cert-manager"
"""Its controllers and its CA injector in one process."""
CERT_MANAGER_CRDS = "cert-manager-crds"
"""Folder of the definitions of its kinds."""
_AUTOSCALERS, _CERT_MANAGER = HERE / "autoscalers", HERE / "cert-manager"
_KUEUE, _COSCHEDULING = HERE / "kueue", HERE / "coscheduling"
_PLUGINS = "sigs.k8s.io/scheduler-plugins"
_MOVED = re.compile(r"\bframework\.(?!PodsToActivate|Resource\b)")
"""What Kubernetes 1.36 has moved from this Go package to `fwk`, in the source of the plugin."""
_IMPORT = '\t"k8s.io/kubernetes/pkg/scheduler/framework"\n'


def other_binaries(say: Say) -> Binaries:
    """Return Kueue, coscheduling and their manifests, after building what is missing.

    The first time takes about two minutes on two cores, where a control plane was built before.

    Args:
        say: Takes one line for people at a time.

    Raises:
        MissingError: A program is missing, and there is no Go to build it.
        BuildError: Its build failed.
    """
    kueue: dict[str, Make] = {
        KUEUE: partial(build_program, _KUEUE, "sigs.k8s.io/kueue/cmd/kueue"),
        KUEUE_CONFIG: _copy_kueue_config,
    }
    coscheduling: dict[str, Make] = {COSCHEDULING: _build_coscheduling, POD_GROUPS: _copy_groups}
    first = built("kueue", (_KUEUE,), kueue, say)
    second = built("coscheduling", (_COSCHEDULING,), coscheduling, say)
    return Binaries({**first.paths, **second.paths})


def autoscaler_binaries(say: Say) -> Binaries:
    """Return Karpenter for nodes of kwok, and the definitions of the autoscalers' APIs.

    The first time takes about three minutes on two cores.

    Args:
        say: Takes one line for people at a time.

    Raises:
        MissingError: A program is missing, and there is no Go to build it.
        BuildError: Its build failed.
    """
    parts: dict[str, Make] = {
        KARPENTER: partial(build_program, _AUTOSCALERS, "sigs.k8s.io/karpenter/kwok"),
        AUTOSCALER_CRDS: _copy_autoscaler_crds,
    }
    return built("autoscalers", [_AUTOSCALERS], parts, say)


def cert_manager_binaries(say: Say) -> Binaries:
    """Return cert-manager and the definitions of its kinds.

    The first time takes about a minute on two cores, where a control plane and Kueue were built
    before.

    Args:
        say: Takes one line for people at a time.

    Raises:
        MissingError: The program is missing, and there is no Go to build it.
        BuildError: Its build failed.
    """
    parts: dict[str, Make] = {
        CERT_MANAGER: partial(build_program, _CERT_MANAGER, "."),
        CERT_MANAGER_CRDS: _copy_cert_manager_crds,
    }
    return built("cert-manager", [_CERT_MANAGER], parts, say)


def _copy_kueue_config(path: Path, say: Say) -> None:
    _copy_tree(source_of(_KUEUE, "sigs.k8s.io/kueue", say) / "config", path)


def _copy_tree(source: Path, path: Path) -> None:
    """Copy without modes: the module cache is read-only."""
    argv = ("cp", "-r", "--no-preserve=mode", source, path)
    subprocess.run(argv, check=True)


def _build_coscheduling(path: Path, say: Say) -> None:
    """Build it from a copy of its source, in which the names are those of Kubernetes 1.36.

    Its releases follow older versions, which would have to be compiled as a whole.
    """
    copy = path.with_name(f"{path.name}.source")
    shutil.rmtree(copy, ignore_errors=True)
    source = source_of(_COSCHEDULING, _PLUGINS, say)
    _copy_tree(source, copy)
    for file in (copy / "pkg/coscheduling").rglob("*.go"):
        text = _MOVED.sub("fwk.", file.read_text())
        is_used = "framework." in text.replace(_IMPORT, "")
        file.write_text(text if is_used else text.replace(_IMPORT, ""))
    modules = (_COSCHEDULING / "go.mod").read_text()
    (copy / "build.mod").write_text(f"{modules}\nreplace {_PLUGINS} => {copy}\n")
    shutil.copyfile(_COSCHEDULING / "go.sum", copy / "build.sum")
    build_program(_COSCHEDULING, ".", path, say, modules=copy / "build.mod")
    shutil.rmtree(copy)


def _copy_groups(path: Path, say: Say) -> None:
    path.mkdir()
    crds = source_of(_COSCHEDULING, _PLUGINS, say) / "config/crd/bases"
    name = "scheduling.x-k8s.io_podgroups.yaml"
    shutil.copyfile(crds / name, path / name)


def _copy_autoscaler_crds(path: Path, say: Say) -> None:
    path.mkdir()
    karpenter = source_of(_AUTOSCALERS, "sigs.k8s.io/karpenter", say)
    autoscaler = source_of(_AUTOSCALERS, "k8s.io/autoscaler/cluster-autoscaler/apis", say)
    for folder in (karpenter / "pkg/apis/crds", karpenter / "kwok/apis/crds"):
        for found in folder.glob("karpenter*.yaml"):
            shutil.copyfile(found, path / found.name)
    name = "autoscaling.x-k8s.io_provisioningrequests.yaml"
    shutil.copyfile(autoscaler / "config/crd" / name, path / name)


def _copy_cert_manager_crds(path: Path, say: Say) -> None:
    path.mkdir()
    source = source_of(_CERT_MANAGER, "github.com/cert-manager/cert-manager", say)
    for found in (source / "deploy/crds").glob("cert-manager.io_*.yaml"):
        shutil.copyfile(found, path / found.name)
