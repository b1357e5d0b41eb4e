"""Settings of the dashboard process, read from the environment."""

from collections.abc import Mapping
from dataclasses import dataclass

from linkwise.cluster.keys import DASHBOARD, POLICY_NAMESPACE
from linkwise.runtime.process.environment import Environment


@dataclass(frozen=True, slots=True)
class Settings:
    """One field for each variable `LINKWISE_<NAME>`; an unset or empty one has its default."""

    host: str = ""
    """Listen address; empty for all."""
    port: int = 8443
    """Port of the page, by HTTPS."""
    local_port: int = 8081
    """Port of the page on the loopback, by HTTP, for forwarded ports."""
    probe_port: int = 8080
    """Port of probes and metrics, without TLS."""
    hosts: str = ""
    """Additional names under which the page is served, comma-separated."""
    certificate: str = "/etc/linkwise/tls/tls.crt"
    """File of the serving certificate and its chain."""
    key: str = "/etc/linkwise/tls/tls.key"
    api_server: str = ""
    """URL such as `https://127.0.0.1:6443`; empty for the API server of the pod's cluster."""
    api_token_file: str = ""
    """Used with `api_server`, like `api_ca_file`."""
    api_ca_file: str = ""
    log_level: str = "info"

    @property
    def names(self) -> frozenset[str]:
        """All names under which the page is served."""
        service = f"{DASHBOARD}.{POLICY_NAMESPACE}.svc"
        own = (name.strip().lower() for name in self.hosts.split(","))
        return frozenset((service, f"{service}.cluster.local", *filter(None, own)))


def read_settings(environment: Mapping[str, str]) -> Settings:
    """Return the settings; an unset or empty variable has its default.

    | variable | default | meaning |
    |---|---|---|
    | `LINKWISE_HOST` | all addresses | address to listen on |
    | `LINKWISE_PORT` | 8443 | the page, by HTTPS |
    | `LINKWISE_LOCAL_PORT` | 8081 | the page on 127.0.0.1, by HTTP |
    | `LINKWISE_PROBE_PORT` | 8080 | probes and metrics, without TLS |
    | `LINKWISE_HOSTS` | none | names of the page beside its Service's, comma-separated |
    | `LINKWISE_CERTIFICATE` | `/etc/linkwise/tls/tls.crt` | certificate and chain |
    | `LINKWISE_KEY` | `/etc/linkwise/tls/tls.key` | its key |
    | `LINKWISE_API_SERVER` | the pod's own | outside a cluster: its address |
    | `LINKWISE_API_TOKEN_FILE` | none | read again for every call |
    | `LINKWISE_API_CA_FILE` | the system's | CA of the API server's certificate |
    | `LINKWISE_LOG_LEVEL` | `info` | `debug`, `info`, `warning`, `error` |

    Raises:
        SettingsError: A value is invalid.
    """
    return Environment(environment).read(Settings, {})
