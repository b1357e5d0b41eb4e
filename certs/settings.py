"""What the environment decides."""

from collections.abc import Mapping
from dataclasses import dataclass

from certs.authority import general_name, service_names
from certs.renewal import IssuancePolicy
from cluster.keys import POLICY_NAMESPACE
from runtime.process.environment import Environment, SettingsError

_DAY = 86_400
_CENTURY = 36_525
SERVICES = ("linkwise-webhook", "linkwise-webhook-standby")
"""Whose names the certificate is for: the replicas that are called, and the one for when that
failed."""
SECRET = "linkwise-webhook-tls"  # noqa: S105 - its name.
REGISTRATIONS = (
    ("mutatingwebhookconfigurations", "MutatingWebhookConfiguration", "linkwise"),
    ("validatingwebhookconfigurations", "ValidatingWebhookConfiguration", "linkwise"),
)
"""Resource, kind and name of each object whose `caBundle` is ours."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Read once, at start."""

    namespace: str
    """Of the Secret and the Services."""
    terms: IssuancePolicy
    host: str
    probe_port: int
    """Of probes and metrics, without TLS."""
    api_server: str
    """Empty for the one that a pod is given."""
    api_token_file: str
    api_ca_file: str
    log_level: str


def read_settings(environment: Mapping[str, str]) -> Settings:
    """Return the settings; a variable that is unset or empty has its default.

    | variable | default | meaning |
    |---|---|---|
    | `LINKWISE_NAMESPACE` | `linkwise-system` | where the Secret and the Services are |
    | `LINKWISE_LEAF_DAYS` | 30 | how long a leaf lasts, at most a third of its CA |
    | `LINKWISE_CA_DAYS` | 365 | how long a CA lasts |
    | `LINKWISE_EXTRA_NAMES` | none | names and addresses beside the Services', comma-separated |
    | `LINKWISE_HOST` | all addresses | where probes and metrics are served |
    | `LINKWISE_PROBE_PORT` | 8080 | the same |
    | `LINKWISE_API_SERVER`, `…_TOKEN_FILE`, `…_CA_FILE` | a pod's | whom to ask |
    | `LINKWISE_LOG_LEVEL` | `info` | the least that is logged |

    Raises:
        SettingsError: A value cannot be used.
    """
    read = Environment(environment)

    def number(name: str, default: float, most: float) -> float:
        given = read.text(name, str(default))
        try:
            value = float(given)
        except ValueError:
            value = 0
        if not 0 < value <= most:
            raise SettingsError(
                f"LINKWISE_{name}={given}: write a number above 0, of {most:g} at most"
            )
        return value

    namespace = read.text("NAMESPACE", POLICY_NAMESPACE)
    leaf, authority = number("LEAF_DAYS", 30, _CENTURY), number("CA_DAYS", 365, _CENTURY)
    if 3 * leaf > authority:
        raise SettingsError("LINKWISE_LEAF_DAYS is more than a third of LINKWISE_CA_DAYS")
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
    services = (name for service in SERVICES for name in service_names(service, namespace))
    return Settings(
        namespace,
        IssuancePolicy((*services, *extra), leaf * _DAY, authority * _DAY),
        read.text("HOST"),
        int(number("PROBE_PORT", 8080, 65535)),
        read.api_server(),
        read.text("API_TOKEN_FILE"),
        read.text("API_CA_FILE"),
        level,
    )
