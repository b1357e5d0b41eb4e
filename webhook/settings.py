"""Settings of the webhook process, read from the environment."""

from collections.abc import Mapping
from dataclasses import dataclass

from linkwise.runtime.process.environment import Environment


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
    """While draining: the process ends after this time without a request [s]; 60 at most, which
    the grace period of the pod covers."""
    log_level: str = "info"

    @property
    def own_host(self) -> str:
        """Host by which the process reaches itself."""
        return self.host or "localhost"


def read_settings(environment: Mapping[str, str]) -> Settings:
    """Return the settings; an unset or empty variable has its default.

    | variable | default | meaning |
    |---|---|---|
    | `LINKWISE_HOST` | all addresses | address to listen on |
    | `LINKWISE_PROBE_PORT` | 8080 | probes and metrics, without TLS |
    | `LINKWISE_CERTIFICATE` | `/etc/linkwise/tls/tls.crt` | certificate and chain |
    | `LINKWISE_KEY` | `/etc/linkwise/tls/tls.key` | its key |
    | `LINKWISE_PORT` | 8443 | admission |
    | `LINKWISE_DRY_RUN_PORT` | 8444 | dry runs |
    | `LINKWISE_CLIENT_CA` | none | file of the CAs of clients of admission |
    | `LINKWISE_DRAIN_SECONDS` | 15 | after SIGTERM: it ends after this idle time, of 60 at most |
    | `LINKWISE_SCORER_TOKEN_FILE` | `/etc/linkwise/scorer/token` | token for the scorer |
    | `LINKWISE_SCORER_CA_FILE` | `/etc/linkwise/scorer/ca.crt` | CA of the scorer's certificate |
    | `LINKWISE_API_SERVER` | the pod's own | outside a cluster: its address |
    | `LINKWISE_API_TOKEN_FILE` | none | read again for every call |
    | `LINKWISE_API_CA_FILE` | the system's | CA of the API server's certificate |
    | `LINKWISE_LOG_LEVEL` | `info` | `debug`, `info`, `warning`, `error` |

    Raises:
        SettingsError: A value is invalid.
    """
    return Environment(environment).read(Settings, {"drain_seconds": 60})
