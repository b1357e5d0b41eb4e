"""Stand-in GPUs of a node: the driver's library, device nodes, and NVIDIA's CDI specification."""

import json
import os
import shutil
import stat
from pathlib import Path

from controlplane.node.image import BUSYBOX
from nvml.standin import StandInNVML

from linkwise.topology.machine import Machine

_LIBRARIES = Path("usr/lib/x86_64-linux-gnu")
_NULL = os.makedev(1, 3)
"""A device that every container may open."""
_TOOLKIT = """#!/bin/busybox sh
[ "$1 $2" = "cdi generate" ] && exec /bin/busybox cp /opt/spec "${3#--output=}"
"""


class StandInGPUs:
    """The GPUs of a machine below the root of a node's file system.

    In a container that has a GPU, `/dev/nvidia<minor>` exists, and `/run/gpus/<minor>` holds the
    UUID of the GPU.
    """

    def __init__(self, root: Path, machine: Machine) -> None:
        """Install the driver of a machine.

        Args:
            root: Root of the node's file system.
            machine: What NVML serves.
        """
        self.root = root
        for folder in (_LIBRARIES, "dev", "gpus", "etc/cdi", "var/run/cdi", "sys"):
            (root / folder).mkdir(parents=True, exist_ok=True)
        self.nvml = StandInNVML(root, machine)
        shutil.copyfile(self.nvml.library, root / _LIBRARIES / self.nvml.library.name)
        for name in ("nvidiactl", "nvidia-uvm", *(f"nvidia{card.minor}" for card in self.cards)):
            os.mknod(root / "dev" / name, stat.S_IFCHR | 0o666, _NULL)
        self._write_uuids()
        self.write_spec()

    @property
    def cards(self) -> list:
        """The GPUs, by index."""
        return self.nvml.cards

    @property
    def uuids(self) -> list[str]:
        """The UUIDs of the GPUs, by index."""
        return [card.uuid for card in self.cards]

    @property
    def spec_file(self) -> Path:
        """NVIDIA's CDI specification."""
        return self.root / "etc/cdi/nvidia.yaml"

    def renumber(self) -> None:
        """Give the minors to the GPUs in reverse order, as a reboot may."""
        minors = [card.minor for card in reversed(self.cards)]
        for card, minor in zip(self.cards, minors, strict=True):
            card.minor = minor
        self.nvml.write()
        self._write_uuids()
        self.write_spec()

    def _write_uuids(self) -> None:
        for card in self.cards:
            (self.root / "gpus" / str(card.minor)).write_text(f"{card.uuid}\n")

    def write_spec(self) -> None:
        """Write the specification."""
        self.spec_file.write_text(self._spec())

    def install_toolkit(self) -> None:
        """Install an `nvidia-ctk` that generates the specification of the driver as it is now."""
        for folder in ("bin", "usr/bin", "opt"):
            (self.root / folder).mkdir(parents=True, exist_ok=True)
        shutil.copy(BUSYBOX, self.root / "bin/busybox")
        (self.root / "opt/spec").write_text(self._spec())
        self._toolkit.write_text(_TOOLKIT)
        self._toolkit.chmod(0o755)

    def remove_toolkit(self) -> None:
        """Remove `nvidia-ctk`, and what it has generated."""
        self._toolkit.unlink()
        shutil.rmtree(self.root / "run/linkwise")

    @property
    def _toolkit(self) -> Path:
        return self.root / "usr/bin/nvidia-ctk"

    def _spec(self) -> str:
        """Return the specification as `nvidia-ctk` writes it for the driver's version."""
        devices = [(str(i), [card]) for i, card in enumerate(self.cards)]
        devices += [(card.uuid, [card]) for card in self.cards]
        spec = {
            "cdiVersion": "0.5.0",
            "kind": "nvidia.com/gpu",
            "devices": [
                {"name": name, "containerEdits": self.edits(cards)}
                for name, cards in [*devices, ("all", self.cards)]
            ],
            "containerEdits": self.common_edits,
        }
        # JSON is YAML.
        return json.dumps(spec)

    @property
    def common_edits(self) -> dict[str, object]:
        """What any container with a GPU gets, for the driver's version."""
        driver = self.root / _LIBRARIES / f"libcuda.so.{self.nvml.driver}"
        driver.touch()
        library = {
            "hostPath": str(driver),
            "containerPath": f"/{_LIBRARIES / driver.name}",
            "options": ["ro", "nosuid", "nodev", "rbind", "rprivate"],
        }
        return {
            "deviceNodes": [self._device("nvidiactl"), self._device("nvidia-uvm")],
            "env": ["NVIDIA_VISIBLE_DEVICES=void"],
            "mounts": [library],
        }

    def edits(self, cards: list) -> dict[str, object]:
        """Return what a container with these GPUs gets."""
        mounts = [
            {
                "hostPath": str(self.root / "gpus" / str(card.minor)),
                "containerPath": f"/run/gpus/{card.minor}",
                "options": ["ro", "bind"],
            }
            for card in cards
        ]
        nodes = [self._device(f"nvidia{card.minor}") for card in cards]
        return {"deviceNodes": nodes, "mounts": mounts}

    def _device(self, name: str) -> dict[str, str]:
        return {"path": f"/dev/{name}", "hostPath": str(self.root / "dev" / name)}
