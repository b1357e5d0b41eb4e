"""What a process of the scorer is told by its environment, read once."""

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address

from runtime.process.environment import Environment, SettingsError, variable


@dataclass(frozen=True, slots=True)
class Settings:
    """Each is a variable `LINKWISE_<NAME>`; one that is unset or empty has its default."""

    host: str = ""
    """Address of probes and metrics, and of what the webhook asks; empty for all."""
    probe_port: int = 8080
    """Of probes and metrics, without TLS."""
    inspect_port: int = 8081
    """Of inspection, on the loopback alone: whoever may forward ports to the pod may look."""
    extender_port: int = 0
    """Of the extender, on the loopback, for a scheduler in the same pod, which then holds the Lease
    for both; 0: there is none."""
    fit_port: int = 8445
    """Of what the webhook asks: whether pods would fit."""
    certificate: str = "/etc/linkwise/tls/tls.crt"
    """File of that port's certificate and its chain; without one nobody is answered there."""
    key: str = "/etc/linkwise/tls/tls.key"
    address: str = ""
    """Where others reach this process; empty for the host, and where that stands for all addresses,
    nobody is told, and dry runs say nothing of placement."""
    api_server: str = ""
    """Such as `https://127.0.0.1:6443`; empty for the one that a pod is given."""
    api_token_file: str = ""
    """Read where an API server is named, and so is the next."""
    api_ca_file: str = ""
    write_seconds: float = 2
    """How long a write may take; a new leader waits for so long before it looks [s]."""
    lease_seconds: int = 15
    """Another process leads when the Lease was not renewed for so long [s]."""
    renew_seconds: float = 10
    """A leader that could not renew the Lease for so long stops [s]."""
    retry_seconds: float = 2
    """Between two renewals, or two attempts to lead [s]."""
    log_level: str = "info"

    @property
    def fit_address(self) -> str:
        """Where the webhook asks, as `host:port`; empty where nobody knows."""
        host = self.address or self.host
        if _is_any(host):
            return ""
        return f"[{host}]:{self.fit_port}" if ":" in host else f"{host}:{self.fit_port}"


def read_settings(environment: Mapping[str, str]) -> Settings:
    """Return what the environment says.

    Raises:
        SettingsError: A value cannot be.
    """
    plain, given = Settings(), Environment(environment)
    level, api_server = given.level(), given.api_server()
    found = Settings(
        host=given.text("host", plain.host),
        address=given.text("address", plain.address),
        probe_port=int(given.number("probe_port", plain.probe_port, 65535)),
        inspect_port=int(given.number("inspect_port", plain.inspect_port, 65535)),
        fit_port=int(given.number("fit_port", plain.fit_port, 65535)),
        certificate=given.text("certificate", plain.certificate),
        key=given.text("key", plain.key),
        extender_port=int(given.number("extender_port", plain.extender_port, 65535)),
        api_server=api_server,
        api_token_file=given.text("api_token_file", plain.api_token_file),
        api_ca_file=given.text("api_ca_file", plain.api_ca_file),
        write_seconds=given.number("write_seconds", plain.write_seconds, 60),
        lease_seconds=int(given.number("lease_seconds", plain.lease_seconds, 600)),
        renew_seconds=given.number("renew_seconds", plain.renew_seconds, 600),
        retry_seconds=given.number("retry_seconds", plain.retry_seconds, 600),
        log_level=level,
    )
    _check_lease(found)
    return found


def _is_any(host: str) -> bool:
    """Tell whether a host to listen on stands for all addresses, so that nobody can ask there."""
    try:
        return not host or ip_address(host).is_unspecified
    except ValueError:
        return False


def _check_lease(found: Settings) -> None:
    """Who could not renew must have stopped before another may lead."""
    if not 0 < found.retry_seconds < found.renew_seconds < found.lease_seconds:
        raise SettingsError(
            f"{variable('renew_seconds')}={found.renew_seconds:g}: write more than "
            f"{variable('retry_seconds')} ({found.retry_seconds:g}) and less than "
            f"{variable('lease_seconds')} ({found.lease_seconds})"
        )
