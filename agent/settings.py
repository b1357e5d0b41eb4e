"""Settings of the agent, read from the environment."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from linkwise.runtime.process.environment import Environment, SettingsError, variable


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


@dataclass(frozen=True, slots=True)
class Settings:
    """One field for each variable `LINKWISE_<NAME>`; an unset or empty one has its default."""

    node_name: str = ""
    pod_uid: str = ""
    """UID of the agent's own pod, whose processes may use any GPU; empty outside of a pod."""
    host_root: str = "/"
    kubelet_dir: str = "/var/lib/kubelet"
    cdi_dir: str = "/var/run/cdi"
    nvidia_cdi_dirs: str = "/etc/cdi:/var/run/cdi"
    proc_dir: str = "/proc"
    sys_dir: str = "/sys"
    read_seconds: float = 30.0
    """Interval between two readings of the driver; faults are reported by events in between."""
    host: str = ""
    probe_port: int = 8080
    """Port of probes and metrics, without TLS."""
    api_server: str = ""
    """URL; empty for the API server of the pod's cluster."""
    api_token_file: str = ""
    api_ca_file: str = ""
    log_level: str = "info"

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


def read_settings(environment: Mapping[str, str]) -> Settings:
    """Return the settings; an unset or empty variable has its default.

    | variable | default | meaning |
    |---|---|---|
    | `LINKWISE_NODE_NAME` | none: required | name of this node |
    | `LINKWISE_POD_UID` | none | UID of the agent's pod: its processes may use any GPU |
    | `LINKWISE_HOST_ROOT` | `/` | root of the node's file system, where it is mounted |
    | `LINKWISE_KUBELET_DIR` | `/var/lib/kubelet` | sockets of the kubelet |
    | `LINKWISE_CDI_DIR` | `/var/run/cdi` | CDI specifications of containers are written here |
    | `LINKWISE_NVIDIA_CDI_DIRS` | `/etc/cdi:/var/run/cdi` | NVIDIA's CDI specification |
    | `LINKWISE_PROC_DIR` | `/proc` | processes of the node |
    | `LINKWISE_SYS_DIR` | `/sys` | PCI devices of the node |
    | `LINKWISE_READ_SECONDS` | 30 | interval between two readings of the driver |
    | `LINKWISE_HOST` | all addresses | address of probes and metrics |
    | `LINKWISE_PROBE_PORT` | 8080 | port of probes and metrics |
    | `LINKWISE_API_SERVER` | the pod's own | outside a cluster: its address |
    | `LINKWISE_API_TOKEN_FILE` | none | read again for every call |
    | `LINKWISE_API_CA_FILE` | the system's | CA of the API server's certificate |
    | `LINKWISE_LOG_LEVEL` | `info` | `debug`, `info`, `warning`, `error` |

    Raises:
        SettingsError: A value cannot be used.
    """
    settings = Environment(environment).read(Settings, {"read_seconds": 3600}, {"read_seconds"})
    if not settings.node_name:
        raise SettingsError(f"{variable('node_name')} is not set: set it to the name of the node")
    return settings
