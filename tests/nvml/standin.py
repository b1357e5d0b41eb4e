"""A stand-in NVML library that serves any machine, and faults on command.

A program started with `StandInNVML.environment()` loads `standin.c` in place of the driver's
library. Each method that changes the machine is seen by the next NVML call of that program.
"""

import hashlib
import os
import shutil
import subprocess
import uuid
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from linkwise.topology.machine import Level

SOURCE = Path(__file__).with_name("standin.c")
MACHINE = "LINKWISE_NVML_MACHINE"
"""Environment variable with the path of the description."""

UNINITIALIZED = 1
DRIVER_NOT_LOADED = 9
TIMEOUT = 10
GPU_IS_LOST = 15
VERSION_MISMATCH = 18
NOT_SUPPORTED = 3
XID = 8
"""Type of an NVML event about an application or hardware error."""

_LEVELS = {
    Level.PSB: 0,
    Level.PIX: 10,
    Level.PXB: 20,
    Level.PHB: 30,
    Level.NODE: 40,
    Level.SYS: 50,
    Level.UNKNOWN: -1,
}
_GPU, _SWITCH = 0, 2
_SWITCH_ID = "FFFFFFFF:FF:FF.0"


def compiler():
    """Return the path of the C compiler, or None."""
    return shutil.which("gcc") or shutil.which("cc")


@cache
def library():
    """Return `libnvidia-ml.so.1`, built once for each version of its source."""
    digest = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    built = root / "linkwise" / "nvml" / digest / "libnvidia-ml.so.1"
    if not built.exists():
        built.parent.mkdir(parents=True, exist_ok=True)
        made = built.with_name(f"{os.getpid()}.so")
        flags = ["-shared", "-fPIC", "-O1", "-Wall", "-Wl,-soname,libnvidia-ml.so.1"]
        subprocess.run([compiler(), *flags, "-o", made, SOURCE, "-lpthread"], check=True)
        made.replace(built)
    return built


@dataclass
class Link:
    """One NVLink as one GPU reports it."""

    remote: str
    kind: int
    active: bool = True


@dataclass
class Card:
    """One GPU as the stand-in serves it."""

    uuid: str
    bus_id: str
    """Such as `0000:07:00.0`."""
    minor: int
    memory: int
    """[bytes]"""
    numa: int
    model: str
    mig: int = -1
    """0: off, 1: on, -1: the GPU has no MIG."""
    state: int = 0
    """NVML's return code of every call about this GPU."""
    links: list[Link] = field(default_factory=list)
    processes: list[int] = field(default_factory=list)

    @property
    def nvml_id(self):
        """The bus id as NVML writes it."""
        return f"0000{self.bus_id}".upper()


class StandInNVML:
    """A machine of the catalogue (or any other), served by the stand-in library."""

    def __init__(self, folder, machine, *, driver="535.161.08", cuda=12020):
        """Write the description of a machine into a folder, which must exist."""
        self.path = Path(folder) / "nvml-machine.txt"
        self.library = library()
        self.driver, self.cuda = driver, cuda
        self.result, self.generation = 0, 1
        self.levels = [[_LEVELS[level] for level in row] for row in machine.levels]
        self.peers = [[0] * machine.n for _ in range(machine.n)]
        self.fabric = (0, 0, "0" * 32)
        """State, clique and cluster UUID."""
        self.cards = [_card(machine, i) for i in range(machine.n)]
        self.events, self.failures = [], {}
        _link(self.cards, machine)
        self.write()

    def environment(self):
        """Return the variables with which a program uses this machine."""
        return {"LD_LIBRARY_PATH": str(self.library.parent), MACHINE: str(self.path)}

    def lose(self, gpu):
        """Let a GPU fall off the bus."""
        self.cards[gpu].state = GPU_IS_LOST
        self.write()

    def restore(self, gpu):
        """Bring a lost GPU back."""
        self.cards[gpu].state = 0
        self.write()

    def xid(self, gpu, code):
        """Report an XID of a GPU to the programs that wait for events."""
        self.events.append((gpu, XID, code))
        self.write()

    def link_down(self, gpu, link=0):
        """Turn off one NVLink of a GPU, at both ends."""
        end = self.cards[gpu].links[link]
        nth = [other.remote for other in self.cards[gpu].links[:link]].count(end.remote)
        for other in self.cards:
            if other.nvml_id == end.remote:
                back = [one for one in other.links if one.remote == self.cards[gpu].nvml_id]
                back[nth].active = False
        self.one_way(gpu, link)

    def one_way(self, gpu, link=0):
        """Turn off one NVLink of a GPU as that GPU reports it; the other end stays active."""
        self.cards[gpu].links[link].active = False
        self.write()

    def set_processes(self, gpu, pids):
        """Let processes run on a GPU."""
        self.cards[gpu].processes = list(pids)
        self.write()

    def set_mig(self, gpu, *, enabled):
        """Turn the MIG mode of a GPU on or off."""
        self.cards[gpu].mig = int(enabled)
        self.write()

    def deny_peer(self, i, j, status=5):
        """Take away the peer access of two GPUs; 5 means not supported."""
        self.peers[i][j] = self.peers[j][i] = status
        self.write()

    def fail(self, function, code=NOT_SUPPORTED):
        """Let a function of NVML fail, as one that an old driver lacks; code 0 mends it."""
        self.failures[function] = code
        self.write()

    def unload_driver(self, code=DRIVER_NOT_LOADED):
        """Unload the driver: every call fails."""
        self.result = code
        self.generation += 1
        self.write()

    def load_driver(self, version=None):
        """Load the driver, perhaps of another version; programs must initialise NVML again."""
        self.result = 0
        self.generation += 1
        self.driver = version or self.driver
        for card in self.cards:
            card.processes = []
        self.write()

    def remove_last(self):
        """Take the last GPU out of the driver's list."""
        self.cards.pop()
        self.write()

    def write(self):
        """Replace the description; needed after changing `cards` and other attributes directly."""
        text = "\n".join(self._lines()) + "\n"
        new = self.path.with_suffix(".new")
        new.write_text(text, errors="surrogateescape")
        new.replace(self.path)

    def _lines(self):
        yield f"init {self.result} {self.generation}"
        yield f"driver {self.driver} {self.cuda}"
        yield "fabric {} {} {}".format(*self.fabric)
        for i, card in enumerate(self.cards):
            yield (
                f"gpu {i} {card.state} {card.uuid} {card.nvml_id} {card.minor} {card.memory}"
                f" {card.numa} {card.mig} {card.model}"
            )
            for number, link in enumerate(card.links):
                yield f"nvlink {i} {number} {int(link.active)} {link.remote} {link.kind}"
            yield from (f"process {i} {pid} 1048576" for pid in card.processes)
            for j in range(len(self.cards)):
                yield f"level {i} {j} {self.levels[i][j]}"
                yield f"p2p {i} {j} {self.peers[i][j]}"
        yield from (f"event {gpu} {kind} {data}" for gpu, kind, data in self.events)
        yield from (f"fails {function} {code}" for function, code in self.failures.items() if code)


def _card(machine, i):
    gpu = machine.gpus[i]
    return Card(
        uuid=gpu.uuid or f"GPU-{uuid.uuid5(uuid.NAMESPACE_OID, f'{i}')}",
        bus_id=gpu.bus_id or f"0000:{7 + 8 * i:02x}:00.0",
        minor=i,
        memory=(gpu.memory or 16) << 30,
        numa=gpu.numa,
        model=machine.model or "NVIDIA GPU",
    )


def _link(cards, machine):
    """Give each GPU its NVLinks, to the other GPUs or to the NVSwitch."""
    for i, card in enumerate(cards):
        if machine.switched:
            count = max(machine.links[i])
            card.links = [Link(_SWITCH_ID, _SWITCH) for _ in range(count)]
        else:
            card.links = [
                Link(cards[j].nvml_id, _GPU)
                for j, count in enumerate(machine.links[i])
                for _ in range(count)
            ]
