"""The programs of a control plane, of a node and of a chart, and how missing ones are built.

They are built once, from the Go modules in and below this folder, into cache folders outside the
tree. `KUBEBUILDER_ASSETS` may name a folder with ready ones.
"""

import fcntl
import hashlib
import json
import os
import platform
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

HERE = Path(__file__).parent
VERSION = "v1.36.3"
NEXT_VERSION = "v1.37.2"
KUBERNETES = os.environ.get("KUBERNETES", "1.36")
"""Version of the control plane: 1.36, or 1.37 by `KUBERNETES=1.37`."""
# Without a version, clients that read it from the API server fail.
_LINKER_FLAGS = "-s -w -X k8s.io/component-base/version.gitVersion={}"
LINKER_FLAGS = _LINKER_FLAGS.format(VERSION)
PACKAGES = {
    "etcd": "go.etcd.io/etcd/server/v3",
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
    "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
    "kubectl": "k8s.io/kubernetes/cmd/kubectl",
    "kwok": "sigs.k8s.io/kwok/cmd/kwok",
}
TRAINING_OPERATOR = "training-operator"
"""Its dependencies are older than the control plane's, so it has a module of its own."""
STAGES = "kwok-stages"
"""Folder of what kwok does with nodes and pods, but for pods that are ready."""
CRDS = "crds"
"""Folder of the definition of MPIJobs."""
_STAGE_FILES = (
    "node/fast/node-initialize.yaml",
    "node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
    "pod/fast/pod-complete.yaml",
    "pod/fast/pod-delete.yaml",
)
_NEXT = HERE / "next"
_OF_NEXT = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
_TRAINING = HERE / "training"
_NODE = {
    "kubelet": ("kubelet", "k8s.io/kubernetes/cmd/kubelet"),
    **{
        name: ("containerd", f"github.com/containerd/containerd/v2/cmd/{name}")
        for name in ("containerd", "containerd-shim-runc-v2", "ctr")
    },
}
"""The folder below `node` of each program's module, and its package."""
_OPERATOR = "github.com/kubeflow/training-operator"
_FLAGS = ("-mod=readonly", "-ldflags", LINKER_FLAGS)
_COLLECTION = {"GOGC": "off", "GOMEMLIMIT": "2GiB"}
"""Of garbage, by Go's compiler: a quarter less processor time than by default, for more memory."""
_REPORT_EVERY = 200
ATTEMPTS = 3
"""Of what may fail because of the network."""
PAUSE = 5
"""Between two of them [s]."""

T = TypeVar("T")
Say = Callable[[str], None]
Make = Callable[[Path, Say], None]


class MissingError(Exception):
    """Programs are missing, and there is no Go to build them: one line for people."""


class BuildError(Exception):
    """A build failed: one line for people, then Go's last ones."""


@dataclass(frozen=True, slots=True)
class Binaries:
    """Where each program and folder lies, by its name."""

    paths: dict[str, Path]

    def __getitem__(self, name: str) -> str:
        return str(self.paths[name])

    def files(self, folder: str) -> list[str]:
        """Return the YAML files of one of the folders."""
        return sorted(str(path) for path in self.paths[folder].glob("*.yaml"))


def binaries(say: Say) -> Binaries:
    """Return every program of a control plane, after building those that are missing.

    The first time takes about ten minutes on two cores, later ones nothing.

    Args:
        say: Takes one line for people at a time.

    Raises:
        MissingError: A program is missing, and there is no Go to build it.
        BuildError: Its build failed.
    """
    parts = dict(_parts())
    if KUBERNETES not in ("1.36", "1.37"):
        raise BuildError(f"KUBERNETES={KUBERNETES}: there are 1.36 and 1.37")
    if KUBERNETES == "1.36":
        return built("controlplane", (HERE, _TRAINING), parts, say)
    for name in _OF_NEXT:
        del parts[name]
    others = built("controlplane", (HERE, _TRAINING), parts, say)
    of_next: dict[str, Make] = {
        name: partial(build_program, _NEXT, PACKAGES[name], version=NEXT_VERSION)
        for name in _OF_NEXT
    }
    return Binaries({**others.paths, **built("next", [_NEXT], of_next, say).paths})


def node_binaries(say: Say) -> Binaries:
    """Return the kubelet and the programs of containerd, after building those that are missing.

    The first time takes about three minutes on two cores, where a control plane was built before.

    Args:
        say: Takes one line for people at a time.

    Raises:
        MissingError: A program is missing, and there is no Go to build it.
        BuildError: Its build failed.
    """
    folders = [HERE / "node" / name for name in ("kubelet", "containerd")]
    parts = {
        name: partial(build_program, HERE / "node" / folder, package)
        for name, (folder, package) in _NODE.items()
    }
    return built("node", folders, parts, say)


def already_built(kind: str, modules: Sequence[Path], name: str) -> Path | None:
    """Return a part if it is there."""
    return _find(name, _cache_folder(kind, modules))


def built(kind: str, modules: Sequence[Path], parts: Mapping[str, Make], say: Say) -> Binaries:
    """Return the parts, after building into the cache of these modules those that are missing."""
    cache = _cache_folder(kind, modules)
    found = {name: path for name in parts if (path := _find(name, cache))}
    missing = [name for name in parts if name not in found]
    if not missing:
        return Binaries(found)
    names = ", ".join(missing)
    if shutil.which("go") is None:
        raise MissingError(f"no Go to build {names}; install Go 1.26 or set KUBEBUILDER_ASSETS")
    say(f"building {names} into {cache}")
    cache.mkdir(parents=True, exist_ok=True)
    with _locked(cache):
        for name in missing:
            # Someone else may have built it while this process waited for the lock.
            found[name] = _find(name, cache) or _made(name, parts[name], cache, say)
    return Binaries(found)


def _parts() -> Iterator[tuple[str, Make]]:
    """Yield the parts of a control plane, and how each is made."""
    for name, package in PACKAGES.items():
        yield name, partial(build_program, HERE, package)
    yield STAGES, _copy_stages
    yield (
        TRAINING_OPERATOR,
        partial(build_program, _TRAINING, f"{_OPERATOR}/cmd/training-operator.v1"),
    )
    yield CRDS, _copy_crds


def _cache_folder(kind: str, modules: Sequence[Path]) -> Path:
    """Return the folder of exactly these versions, built in exactly this way."""
    how = (*_FLAGS, platform.system(), platform.machine())
    digest = hashlib.sha256(" ".join(how).encode())
    for module in modules:
        # tools.go only names packages.
        for name in ("go.mod", "go.sum", "main.go"):
            if (module / name).exists():
                digest.update((module / name).read_bytes())
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return root / "linkwise" / kind / digest.hexdigest()[:16]


def _find(name: str, cache: Path) -> Path | None:
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    folders = [Path(assets), cache] if assets else [cache]
    return next((folder / name for folder in folders if (folder / name).exists()), None)


@contextmanager
def _locked(cache: Path) -> Iterator[None]:
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _made(name: str, make: Make, cache: Path, say: Say) -> Path:
    """Make one part; what was interrupted leaves nothing that looks whole."""
    path, draft = cache / name, cache / f"{name}.draft"
    shutil.rmtree(draft, ignore_errors=True)
    make(draft, say)
    draft.replace(path)
    say(f"{name}: done")
    return path


def build_program(
    module: Path,
    package: str,
    path: Path,
    say: Say,
    *,
    version: str = VERSION,
    modules: Path | None = None,
) -> None:
    """Build a program, and say from time to time how many packages are compiled.

    A build may download; what it compiled and downloaded before a failure is kept.

    Args:
        module: Folder of the module to build it from.
        package: Its package.
        path: Where it will lie.
        say: Takes one line for people at a time.
        version: What it reports as its version.
        modules: A go.mod to use instead of the module's.
    """
    flags = ("-mod=readonly", "-ldflags", _LINKER_FLAGS.format(version))
    if modules:
        flags += (f"-modfile={modules}",)
    argv = ("go", "build", "-v", *flags, "-o", str(path), package)
    say(f"{package}: building")
    retried(lambda: _build(argv, module, package, say), say)


def _build(argv: Sequence[str], module: Path, package: str, say: Say) -> None:
    lines = []
    environment = {**os.environ, **_COLLECTION}
    with subprocess.Popen(
        argv, cwd=module, env=environment, stderr=subprocess.PIPE, text=True
    ) as build:
        for line in build.stderr or ():
            lines.append(line)
            if len(lines) % _REPORT_EVERY == 0:
                say(f"{package}: {len(lines)} packages")
    if build.returncode:
        raise BuildError(f"go build {package} failed:\n{''.join(lines[-5:]).strip()}")


def _copy_stages(path: Path, say: Say) -> None:
    stages = source_of(HERE, "sigs.k8s.io/kwok", say) / "kustomize/stage"
    path.mkdir()
    for name in _STAGE_FILES:
        # Without its mode: the module cache is read-only.
        shutil.copyfile(stages / name, path / Path(name).name)


def _copy_crds(path: Path, say: Say) -> None:
    path.mkdir()
    name = "kubeflow.org_mpijobs.yaml"
    crds = source_of(_TRAINING, _OPERATOR, say) / "manifests/base/crds"
    shutil.copyfile(crds / name, path / name)


def source_of(module: Path, name: str, say: Say) -> Path:
    """Return the folder of a module's source in Go's cache."""
    return retried(lambda: _download(module, name), say)


def _download(module: Path, name: str) -> Path:
    argv = ("go", "mod", "download", "-json", name)
    answer = subprocess.run(argv, cwd=module, capture_output=True, text=True, check=False)
    if answer.returncode:
        raise BuildError(f"{' '.join(argv)} failed:\n{answer.stdout}{answer.stderr}")
    return Path(json.loads(answer.stdout)["Dir"])


def retried(attempt: Callable[[], T], say: Say) -> T:
    """Return what one of three attempts returns; say why the ones before failed.

    Raises:
        BuildError: Each failed.
    """
    for number in range(1, ATTEMPTS):
        try:
            return attempt()
        except BuildError as error:
            say(f"attempt {number} of {ATTEMPTS}: {error}")
            time.sleep(PAUSE)
    return attempt()
