"""Settings of the agent, read from the environment."""

from dataclasses import dataclass
from pathlib import Path

from linkwise.runtime.process.settings import ProcessSettings, SettingsError, setting, variable


@dataclass(frozen=True, slots=True)
class Paths:
    """Folders of the node, as this process sees them."""

    host_root: Path
    """Root of the node's file system: its driver library and programs lie below it."""
    kubelet: Path
    """State and configuration of the kubelet."""
    device_plugins: Path
    """Sockets of device plugins, and of the kubelet's registration service."""
    pod_resources: Path
    """Socket of the kubelet's PodResources service."""
    cdi: Path
    """CDI specifications of containers are written here."""
    nvidia_cdi: tuple[Path, ...]
    """NVIDIA's CDI specification is searched here."""
    proc: Path
    sys: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(ProcessSettings):
    """One field for each variable `LINKWISE_<NAME>`; an unset or empty one has its default."""

    node_name: str = setting("", "name of this node", shown="none: required")
    pod_uid: str = setting("", "UID of the agent's pod: its processes may use any GPU")
    host_root: str = setting("/", "root of the node's file system, where it is mounted")
    kubelet_dir: str = setting("/var/lib/kubelet", "sockets of the kubelet")
    cdi_dir: str = setting("/var/run/cdi", "CDI specifications of containers are written here")
    nvidia_cdi_dirs: str = setting("/etc/cdi:/var/run/cdi", "NVIDIA's CDI specification")
    proc_dir: str = setting("/proc", "processes of the node")
    sys_dir: str = setting("/sys", "PCI devices of the node")
    # Faults are reported by events in between.
    read_seconds: float = setting(
        30.0, "interval between two readings of the driver", most=3600, positive=True
    )
    host: str = setting("", "address of probes and metrics", shown="all addresses")
    probe_port: int = setting(8080, "port of probes and metrics")

    @property
    def paths(self) -> Paths:
        """The folders of the node. The kubelet's sockets are mounted at their own paths."""
        root, kubelet = Path(self.host_root), Path(self.kubelet_dir)
        folders = self.nvidia_cdi_dirs.split(":")
        return Paths(
            host_root=root,
            kubelet=root / kubelet.relative_to(kubelet.anchor),
            device_plugins=kubelet / "device-plugins",
            pod_resources=kubelet / "pod-resources/kubelet.sock",
            cdi=Path(self.cdi_dir),
            nvidia_cdi=tuple(root / folder.lstrip("/") for folder in folders if folder),
            proc=Path(self.proc_dir),
            sys=Path(self.sys_dir),
        )

    def check(self) -> None:
        """Check that the node is known."""
        if not self.node_name:
            raise SettingsError(
                f"{variable('node_name')} is not set: set it to the name of the node"
            )
