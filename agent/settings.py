"""Settings of the agent, read from the environment."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from runtime.process.environment import Environment, SettingsError


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
    """Settings, read once at start."""

    node: str
    pod_uid: str | None
    """UID of the agent's own pod, whose processes may use any GPU; None outside of a pod."""
    paths: Paths
    read_seconds: float
    """Interval between two readings of the driver; faults are reported by events in between."""
    host: str
    probe_port: int
    """Port of probes and metrics, without TLS."""
    api_server: str
    """URL; empty for the API server of the pod's cluster."""
    api_token_file: str
    api_ca_file: str
    log_level: str


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
    read = Environment(environment)
    node = read.text("NODE_NAME")
    if not node:
        raise SettingsError("LINKWISE_NODE_NAME is not set: set it to the name of the node")
    root = Path(read.text("HOST_ROOT", "/"))
    kubelet = Path(read.text("KUBELET_DIR", "/var/lib/kubelet"))
    cdi = read.text("NVIDIA_CDI_DIRS", "/etc/cdi:/var/run/cdi")
    return Settings(
        node=node,
        pod_uid=read.text("POD_UID") or None,
        paths=Paths(
            host_root=root,
            kubelet=root / kubelet.relative_to(kubelet.anchor),
            device_plugins=kubelet / "device-plugins",
            pod_resources=kubelet / "pod-resources/kubelet.sock",
            cdi=Path(read.text("CDI_DIR", "/var/run/cdi")),
            nvidia_cdi=tuple(root / folder.lstrip("/") for folder in cdi.split(":") if folder),
            proc=Path(read.text("PROC_DIR", "/proc")),
            sys=Path(read.text("SYS_DIR", "/sys")),
        ),
        read_seconds=_positive(read, "READ_SECONDS", 30),
        host=read.text("HOST"),
        probe_port=int(read.number("PROBE_PORT", 8080, 65535)),
        api_server=read.api_server(),
        api_token_file=read.text("API_TOKEN_FILE"),
        api_ca_file=read.text("API_CA_FILE"),
        log_level=read.level(),
    )


def _positive(read: Environment, name: str, default: float) -> float:
    seconds = read.number(name, default, 3600)
    if seconds < 1:
        raise SettingsError(f"LINKWISE_{name}={seconds:g}: write a number from 1 to 3600")
    return seconds
