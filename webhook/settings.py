"""Settings of the webhook process, read from the environment."""

from collections.abc import Mapping
from dataclasses import dataclass

from runtime.process.environment import Environment


@dataclass(frozen=True, slots=True)
class Settings:
    """Each is a variable `LINKWISE_<NAME>`; an unset or empty variable has its default."""

    host: str = ""
    """Listen address; empty for all."""
    port: int = 8443
    """Port of admission."""
    dry_run_port: int = 8444
    """Port of the dry-run API."""
    probe_port: int = 8080
    """Port of probes and metrics, without TLS."""
    certificate: str = "/etc/linkwise/tls/tls.crt"
    """File of the serving certificate and its chain."""
    key: str = "/etc/linkwise/tls/tls.key"
    client_ca: str = ""
    """File of the CAs of API servers' client certificates; empty to require none."""
    api_server: str = ""
    """URL such as `https://127.0.0.1:6443`; empty for the API server of the pod's cluster."""
    api_token_file: str = ""
    """Used with `api_server`, like `api_ca_file`."""
    api_ca_file: str = ""
    scorer_token_file: str = "/etc/linkwise/scorer/token"  # noqa: S105 - its path.
    """File of the token for the scorer's fit API; read again for each dry run."""
    scorer_ca_file: str = "/etc/linkwise/scorer/ca.crt"
    """File of the CA of the scorer's certificate."""
    drain_seconds: float = 15.0
    """While draining: the process ends after this time without a request [s]."""
    log_level: str = "info"

    @property
    def own_host(self) -> str:
        """Host by which the process reaches itself."""
        return self.host or "localhost"


def read_settings(environment: Mapping[str, str]) -> Settings:
    """Return the settings of an environment.

    Raises:
        SettingsError: A value is invalid.
    """
    return Environment(environment).read(Settings, {"drain_seconds": 600})
