"""Settings of the certs process, read from the environment."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from certs.authority import general_name, service_names
from certs.leaf import Server
from certs.rotation import IssuancePolicy
from linkwise.cluster.keys import DASHBOARD, POLICY_NAMESPACE, SCORER
from linkwise.runtime.process.environment import Environment, SettingsError, variable

_DAY = 86_400
_CENTURY = 36_525
_MAXIMA = {"leaf_days": _CENTURY, "ca_days": _CENTURY, "propagation_seconds": _DAY}
SERVERS = (
    ("webhook", "linkwise-webhook-cert", "linkwise-webhook"),
    ("standby", "linkwise-webhook-standby-cert", "linkwise-webhook-standby"),
    ("scorer", "linkwise-scorer-cert", SCORER),
)
"""Name, Secret and Service of each server; the scorer's Service is only a name."""
DASHBOARD_SERVER = ("dashboard", "linkwise-dashboard-cert", DASHBOARD)
"""The same of a server that need not be there."""
WEBHOOK_CONFIGURATIONS = (
    ("mutatingwebhookconfigurations", "MutatingWebhookConfiguration", "linkwise"),
    ("validatingwebhookconfigurations", "ValidatingWebhookConfiguration", "linkwise"),
)
"""Resource, kind and name of each webhook configuration that gets our `caBundle`."""


class Mode(StrEnum):
    """The issuer of certificates."""

    SELF = "self"
    CERT_MANAGER = "cert-manager"
    PROVIDED = "provided"


@dataclass(frozen=True, slots=True)
class Settings:
    """One field for each variable `LINKWISE_<NAME>`; an unset or empty one has its default."""

    namespace: str = POLICY_NAMESPACE
    """Namespace of the Secrets and the Services."""
    certificates: str = Mode.SELF.value
    """A `Mode`."""
    leaf_days: float = 30.0
    ca_days: float = 365.0
    propagation_seconds: float = 600.0
    extra_names: str = ""
    """Additional names and addresses of each server, comma-separated."""
    dashboard: str = "off"
    """`on` where the dashboard is installed, which then has a certificate."""
    host: str = ""
    probe_port: int = 8080
    """Port of probes and metrics, without TLS."""
    api_server: str = ""
    """URL; empty for the API server of the pod's cluster."""
    api_token_file: str = ""
    api_ca_file: str = ""
    log_level: str = "info"

    @property
    def mode(self) -> Mode:
        """The issuer of certificates."""
        return Mode(self.certificates)

    @property
    def issuance(self) -> IssuancePolicy:
        """The servers with certificates, and the times of a rotation."""
        present = (*SERVERS, DASHBOARD_SERVER) if self.dashboard == "on" else SERVERS
        extra = [name.strip() for name in self.extra_names.split(",") if name.strip()]
        servers = tuple(
            Server(name, secret, (*service_names(service, self.namespace), *extra))
            for name, secret, service in present
        )
        return IssuancePolicy(
            servers, self.leaf_days * _DAY, self.ca_days * _DAY, self.propagation_seconds
        )


def read_settings(environment: Mapping[str, str]) -> Settings:
    """Return the settings; an unset or empty variable has its default.

    | variable | default | meaning |
    |---|---|---|
    | `LINKWISE_NAMESPACE` | `linkwise-system` | namespace of the Secrets and the Services |
    | `LINKWISE_CERTIFICATES` | `self` | issuer: `self`, `cert-manager` or `provided` |
    | `LINKWISE_LEAF_DAYS` | 30 | validity of a leaf, at most a third of its CA's |
    | `LINKWISE_CA_DAYS` | 365 | validity of a CA |
    | `LINKWISE_PROPAGATION_SECONDS` | 600 | wait of a rotation, at most a third of a leaf |
    | `LINKWISE_EXTRA_NAMES` | none | additional names and addresses, comma-separated |
    | `LINKWISE_DASHBOARD` | `off` | `on`: also a certificate for the dashboard |
    | `LINKWISE_HOST` | all addresses | address of probes and metrics |
    | `LINKWISE_PROBE_PORT` | 8080 | port of probes and metrics |
    | `LINKWISE_API_SERVER` | the pod's own | outside a cluster: its address |
    | `LINKWISE_API_TOKEN_FILE` | none | read again for every call |
    | `LINKWISE_API_CA_FILE` | the system's | CA of the API server's certificate |
    | `LINKWISE_LOG_LEVEL` | `info` | `debug`, `info`, `warning`, `error` |

    Raises:
        SettingsError: A value cannot be used.
    """
    settings = Environment(environment).read(Settings, _MAXIMA, _MAXIMA)
    if 3 * settings.leaf_days > settings.ca_days:
        raise SettingsError(
            f"{variable('leaf_days')} is more than a third of {variable('ca_days')}"
        )
    if 3 * settings.propagation_seconds > settings.leaf_days * _DAY:
        raise SettingsError(
            f"{variable('propagation_seconds')} is more than a third of {variable('leaf_days')}"
        )
    if settings.certificates not in {*Mode}:
        text, modes = settings.certificates, ", ".join(Mode)
        raise SettingsError(f"{variable('certificates')}={text}: write {modes}")
    if settings.dashboard not in {"on", "off"}:
        raise SettingsError(f"{variable('dashboard')}={settings.dashboard}: write on or off")
    for server in settings.issuance.servers:
        _check_names(server)
    return settings


def _check_names(server: Server) -> None:
    for name in server.names:
        try:
            general_name(name)
        except ValueError:
            raise SettingsError(
                f"{variable('extra_names')}: {name} is neither a DNS name nor an address;"
                " write letters beyond ASCII as xn--..."
            ) from None
