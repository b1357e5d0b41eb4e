"""Settings of a scorer process, read from its environment at start."""

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address

from linkwise.runtime.process.environment import Environment, SettingsError, variable

_MAXIMA = {"write_seconds": 60, "lease_seconds": 600, "renew_seconds": 600, "retry_seconds": 600}


@dataclass(frozen=True, slots=True)
class Settings:
    """One field for each variable `LINKWISE_<NAME>`; an unset or empty one has its default."""

    host: str = ""
    """Address to listen on for probes, metrics and the webhook's requests; empty for all."""
    probe_port: int = 8080
    """For probes and metrics, without TLS."""
    inspect_port: int = 8081
    """For inspection, on the loopback only: users need the right to forward ports to the pod."""
    extender_port: int = 0
    """For the extender, on the loopback; 0: there is none. A scheduler in the same pod uses it, and
    holds the Lease for both."""
    fit_port: int = 8445
    """For the webhook's requests whether pods would fit."""
    certificate: str = "/etc/linkwise/tls/tls.crt"
    """File of the certificate and chain of `fit_port`; without one its TLS handshakes fail."""
    key: str = "/etc/linkwise/tls/tls.key"
    address: str = ""
    """Address at which the webhook and other replicas reach this process; empty for `host`. If
    `host` stands for all addresses, none is published: dry runs do not include placement, and other
    replicas do not notice when this one is killed."""
    api_server: str = ""
    """Such as `https://127.0.0.1:6443`; empty for the one of the pod's service account."""
    api_token_file: str = ""
    """Used together with `api_server`, as is `api_ca_file`."""
    api_ca_file: str = ""
    write_seconds: float = 2.0
    """Maximum time of a write; a new leader waits for this time before it lists objects [s]."""
    lease_seconds: int = 15
    """After this time without renewal another process may take the Lease [s]."""
    renew_seconds: float = 10.0
    """A leader that could not renew the Lease for this time stops [s]."""
    retry_seconds: float = 2.0
    """Between two renewals, or two attempts to take the Lease [s]."""
    log_level: str = "info"

    @property
    def fit_address(self) -> str:
        """The published address for the webhook, as `host:port`; empty if unknown."""
        host = self.address or self.host
        if _is_any(host):
            return ""
        return f"[{host}]:{self.fit_port}" if ":" in host else f"{host}:{self.fit_port}"


def read_settings(environment: Mapping[str, str]) -> Settings:
    """Return the settings; an unset or empty variable has its default.

    | variable | default | meaning |
    |---|---|---|
    | `LINKWISE_HOST` | all addresses | address to listen on |
    | `LINKWISE_PROBE_PORT` | 8080 | probes and metrics, without TLS |
    | `LINKWISE_CERTIFICATE` | `/etc/linkwise/tls/tls.crt` | certificate and chain |
    | `LINKWISE_KEY` | `/etc/linkwise/tls/tls.key` | its key |
    | `LINKWISE_FIT_PORT` | 8445 | placement requests of the webhook |
    | `LINKWISE_ADDRESS` | the host | address at which the webhook reaches this process |
    | `LINKWISE_INSPECT_PORT` | 8081 | inspection, on 127.0.0.1 |
    | `LINKWISE_EXTENDER_PORT` | 0: none | a scheduler in the same pod, on 127.0.0.1 |
    | `LINKWISE_WRITE_SECONDS` | 2 | timeout of a write |
    | `LINKWISE_LEASE_SECONDS` | 15 | others may take the Lease after this time |
    | `LINKWISE_RENEW_SECONDS` | 10 | a leader stops if it cannot renew for this time |
    | `LINKWISE_RETRY_SECONDS` | 2 | between two renewals, and two attempts to lead |
    | `LINKWISE_API_SERVER` | the pod's own | outside a cluster: its address |
    | `LINKWISE_API_TOKEN_FILE` | none | read again for every call |
    | `LINKWISE_API_CA_FILE` | the system's | CA of the API server's certificate |
    | `LINKWISE_LOG_LEVEL` | `info` | `debug`, `info`, `warning`, `error` |

    Raises:
        SettingsError: A value is invalid.
    """
    settings = Environment(environment).read(Settings, _MAXIMA)
    _check_lease(settings)
    return settings


def _is_any(host: str) -> bool:
    """Return whether a host to listen on stands for all addresses, which no client can use."""
    try:
        return not host or ip_address(host).is_unspecified
    except ValueError:
        return False


def _check_lease(settings: Settings) -> None:
    """Check that a leader that cannot renew stops before another process may take the Lease."""
    if not 0 < settings.retry_seconds < settings.renew_seconds < settings.lease_seconds:
        raise SettingsError(
            f"{variable('renew_seconds')}={settings.renew_seconds:g}: write more than "
            f"{variable('retry_seconds')} ({settings.retry_seconds:g}) and less than "
            f"{variable('lease_seconds')} ({settings.lease_seconds})"
        )
