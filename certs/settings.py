"""Settings of the certs process, read from the environment."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from certs.authority import general_name, service_names
from certs.leaf import Server
from certs.rotation import IssuancePolicy
from cluster.keys import POLICY_NAMESPACE, SCORER
from runtime.process.environment import Environment, SettingsError

_DAY = 86_400
_CENTURY = 36_525
SERVERS = (
    ("webhook", "linkwise-webhook-cert", "linkwise-webhook"),
    ("standby", "linkwise-webhook-standby-cert", "linkwise-webhook-standby"),
    ("scorer", "linkwise-scorer-cert", SCORER),
)
"""Name, Secret and Service of each server; the scorer's Service is only a name."""
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
    """Settings, read once at start."""

    namespace: str
    """Namespace of the Secrets and the Services."""
    mode: Mode
    issuance: IssuancePolicy
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
    | `LINKWISE_NAMESPACE` | `linkwise-system` | namespace of the Secrets and the Services |
    | `LINKWISE_CERTIFICATES` | `self` | issuer: `self`, `cert-manager` or `provided` |
    | `LINKWISE_LEAF_DAYS` | 30 | validity of a leaf, at most a third of its CA's |
    | `LINKWISE_CA_DAYS` | 365 | validity of a CA |
    | `LINKWISE_PROPAGATION_SECONDS` | 600 | wait of a rotation, at most a third of a leaf |
    | `LINKWISE_EXTRA_NAMES` | none | additional names and addresses, comma-separated |
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

    def number(name: str, default: float, maximum: float) -> float:
        text = read.text(name, str(default))
        try:
            value = float(text)
        except ValueError:
            value = 0
        if not 0 < value <= maximum:
            raise SettingsError(
                f"LINKWISE_{name}={text}: write a number above 0, of {maximum:g} at most"
            )
        return value

    namespace = read.text("NAMESPACE", POLICY_NAMESPACE)
    leaf, authority = number("LEAF_DAYS", 30, _CENTURY), number("CA_DAYS", 365, _CENTURY)
    if 3 * leaf > authority:
        raise SettingsError("LINKWISE_LEAF_DAYS is more than a third of LINKWISE_CA_DAYS")
    propagation = number("PROPAGATION_SECONDS", 600, _DAY)
    if 3 * propagation > leaf * _DAY:
        raise SettingsError(
            "LINKWISE_PROPAGATION_SECONDS is more than a third of LINKWISE_LEAF_DAYS"
        )
    level = read.level()
    extra = [name.strip() for name in read.text("EXTRA_NAMES").split(",") if name.strip()]
    for name in extra:
        try:
            general_name(name)
        except ValueError:
            raise SettingsError(
                f"LINKWISE_EXTRA_NAMES: {name} is neither a DNS name nor an address;"
                " write letters beyond ASCII as xn--..."
            ) from None
    servers = tuple(
        Server(name, secret, (*service_names(service, namespace), *extra))
        for name, secret, service in SERVERS
    )
    return Settings(
        namespace,
        _mode(read.text("CERTIFICATES", Mode.SELF)),
        IssuancePolicy(servers, leaf * _DAY, authority * _DAY, propagation),
        read.text("HOST"),
        int(number("PROBE_PORT", 8080, 65535)),
        read.api_server(),
        read.text("API_TOKEN_FILE"),
        read.text("API_CA_FILE"),
        level,
    )


def _mode(text: str) -> Mode:
    try:
        return Mode(text)
    except ValueError:
        raise SettingsError(f"LINKWISE_CERTIFICATES={text}: write {', '.join(Mode)}") from None
