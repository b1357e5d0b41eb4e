"""Isolate a node of the tests: a folder, a cgroup, a bridge and a mount namespace.

Kubelet and containerd run in the mount namespace, with their own `/var/lib`, `/var/log` and `/run`.
So several nodes can run on one machine, also beside its own kubelet.
"""

import fcntl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import gettempdir

from controlplane.node.cleaner import clean, hierarchies, kill
from controlplane.process import NotReadyError, Process, Processes

_PLACES = 8
"""Each has an eighth of the network."""
_ADDRESSES = 32
_CLEANER = Path(__file__).with_name("cleaner.py")
# A kubelet sets these for the whole machine; here it sets copies.
_SYSCTLS = (
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxbytes",
    "kernel/keys/root_maxkeys",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
)
_MOUNTS = f"""
set -e
mount --bind "$1/lib" /var/lib
mount --bind "$1/log" /var/log
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p "$1/sysctl"
for name in {" ".join(_SYSCTLS)}; do
  copy="$1/sysctl/$(basename "$name")"
  cat "/proc/sys/$name" >"$copy"
  mount --bind "$copy" "/proc/sys/$name"
done
touch /run/mounted
exec sleep infinity
"""
_JOIN = 'echo $$ >"$1"; shift; exec "$@"'


@dataclass(slots=True)
class Place:
    """One of several places; only one node has it at a time."""

    number: int
    processes: Processes
    cleaner: int = field(default=0, init=False)
    """Id of the process that removes everything; where the place is kept, at SIGTERM."""
    kept: bool = field(default=False, init=False)
    """It outlives this process."""
    _holder: Process | None = field(default=None, init=False)

    @property
    def name(self) -> str:
        """The name of its cgroup and of its bridge."""
        return f"linkwise{self.number}"

    @property
    def folder(self) -> Path:
        """Its files. The path is short: those of sockets have at most 107 characters."""
        return _folder(self.number)

    @property
    def subnet(self) -> str:
        """The addresses of its pods."""
        return f"192.0.2.{_ADDRESSES * self.number}/27"

    @property
    def address(self) -> str:
        """The address of the node, on its bridge."""
        return f"192.0.2.{_ADDRESSES * self.number + 1}"

    @property
    def run(self) -> Path:
        """Its `/run`, seen from outside; what is there is gone after a reboot."""
        return Path(f"/proc/{self._pid}/root/run")

    def start(self) -> None:
        """Make the cgroup, and the mount namespace with an empty `/run`.

        Raises:
            NotReadyError: The mounts were not made.
        """
        for root in hierarchies():
            _make_cgroup(root / self.name)
        self._daemons.mkdir()
        for name in ("lib", "log"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        argv = ("unshare", "--mount", "--propagation=private", "sh", "-c", _MOUNTS, "sh")
        holder = self._process("mounts", (*argv, str(self.folder)))
        self._holder = holder
        self.processes.start(holder)
        holder.wait_ready((self.run / "mounted").exists, 60)

    def stop(self) -> None:
        """Kill all that runs here. The files stay, but for those in `/run`."""
        if self._holder is not None:
            self.processes.stop(self._holder)
            self._holder = None
        kill(self.name)

    def process(self, name: str, argv: tuple[str, ...]) -> Process:
        """Return a program that runs in the mount namespace; its log is `<name>.log`."""
        return self._process(name, (*self.enter, *argv))

    @property
    def enter(self) -> tuple[str, ...]:
        """The command that runs another in the mount namespace."""
        return ("nsenter", f"--mount=/proc/{self._pid}/ns/mnt", "--")

    @property
    def _pid(self) -> int:
        if self._holder is None:
            raise NotReadyError("the node is not started")
        return self._holder.pid

    @property
    def _daemons(self) -> Path:
        [root, *_] = (root for root in hierarchies() if root.name in {"pids", "cgroup"})
        return root / self.name / "daemons"

    def _process(self, name: str, argv: tuple[str, ...]) -> Process:
        join = ("sh", "-c", _JOIN, "sh", str(self._daemons / "cgroup.procs"))
        return Process(name, (*join, *argv), self.folder / "log" / f"{name}.log")


@contextmanager
def a_place(processes: Processes) -> Iterator[Place]:
    """Take a free place, and remove all that the node leaves there, even if this process is killed.

    A place that is kept stays.

    Raises:
        NotReadyError: All places are taken.
    """
    for number in range(_PLACES):
        with _folder(number).with_suffix(".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            place = Place(number, processes)
            # What stayed of a node whose cleaner was killed, too.
            clean(place.folder, place.name)
            with _cleaned(place, lock.fileno()):
                _make_bridge(place)
                yield place
            return
    raise NotReadyError(f"all {_PLACES} places for nodes are taken")


@contextmanager
def _cleaned(place: Place, lock: int) -> Iterator[None]:
    argv = (sys.executable, str(_CLEANER), str(place.folder), place.name)
    cleaner = subprocess.Popen(
        argv, stdin=subprocess.PIPE, pass_fds=(lock,), start_new_session=True
    )
    place.cleaner = cleaner.pid
    try:
        yield
    finally:
        if place.kept:
            cleaner.stdin.write(b"kept")
            cleaner.stdin.close()
        else:
            cleaner.communicate(timeout=300)
            if cleaner.returncode or place.folder.exists():
                raise NotReadyError(f"{place.folder} could not be removed")


def _folder(number: int) -> Path:
    return Path(gettempdir()) / f"linkwise-node-{number}"


def _make_cgroup(path: Path) -> None:
    path.mkdir()
    for name in ("cpuset.cpus", "cpuset.mems"):
        # Version 1 refuses processes in a cgroup that has none.
        if (path / name).exists() and not (path / "cgroup.controllers").exists():
            (path / name).write_text((path.parent / name).read_text())


def _make_bridge(place: Place) -> None:
    for words in (
        f"link add {place.name} type bridge",
        f"address add {place.address}/27 dev {place.name}",
        f"link set {place.name} up",
    ):
        argv = ("ip", *words.split())
        subprocess.run(argv, check=True, timeout=60)
