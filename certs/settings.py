"""Settings of the certs process, read from the environment."""

from dataclasses import dataclass
from enum import StrEnum

from certs.authority import general_name, service_names
from certs.leaf import Server
from certs.rotation import IssuancePolicy
from linkwise.cluster.keys import DASHBOARD, POLICY_NAMESPACE, SCORER
from linkwise.runtime.process.settings import ProcessSettings, SettingsError, setting, variable

_DAY = 86_400
_CENTURY = 36_525
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(ProcessSettings):
    """One field for each variable `LINKWISE_<NAME>`; an unset or empty one has its default."""

    namespace: str = setting(POLICY_NAMESPACE, "namespace of the Secrets and the Services")
    certificates: str = setting(
        Mode.SELF.value, "issuer: self, cert-manager or provided", choices=Mode
    )
    leaf_days: float = setting(
        30.0, "validity of a leaf, at most a third of its CA's", most=_CENTURY, positive=True
    )
    ca_days: float = setting(365.0, "validity of a CA", most=_CENTURY, positive=True)
    propagation_seconds: float = setting(
        600.0, "wait of a rotation, at most a third of a leaf", most=_DAY, positive=True
    )
    extra_names: str = setting("", "additional names and addresses, comma-separated")
    dashboard: str = setting("off", "on: also a certificate for the dashboard")
    host: str = setting("", "address of probes and metrics", shown="all addresses")
    probe_port: int = setting(8080, "port of probes and metrics")

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

    def check(self) -> None:
        """Check the times of a rotation, and the names in certificates."""
        if 3 * self.leaf_days > self.ca_days:
            raise SettingsError(
                f"{variable('leaf_days')} is more than a third of {variable('ca_days')}"
            )
        if 3 * self.propagation_seconds > self.leaf_days * _DAY:
            raise SettingsError(
                f"{variable('propagation_seconds')} is more than a third of {variable('leaf_days')}"
            )
        if self.dashboard not in {"on", "off"}:
            raise SettingsError(f"{variable('dashboard')}={self.dashboard}: write on or off")
        for server in self.issuance.servers:
            _check_names(server)


def _check_names(server: Server) -> None:
    for name in server.names:
        try:
            general_name(name)
        except ValueError:
            raise SettingsError(
                f"{variable('extra_names')}: {name} is neither a DNS name nor an address;"
                " write letters beyond ASCII as xn--..."
            ) from None
