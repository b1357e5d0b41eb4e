"""Settings of a scorer process, read from its environment at start."""

from dataclasses import dataclass
from ipaddress import ip_address

from linkwise.runtime.process.settings import ProcessSettings, SettingsError, setting, variable


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(ProcessSettings):
    """One field for each variable `LINKWISE_<NAME>`; an unset or empty one has its default."""

    host: str = setting("", "address to listen on", shown="all addresses")
    probe_port: int = setting(8080, "probes and metrics, without TLS")
    certificate: str = setting("/etc/linkwise/tls/tls.crt", "certificate and chain")
    key: str = setting("/etc/linkwise/tls/tls.key", "its key")
    fit_port: int = setting(8445, "placement requests of the webhook")
    # Without an address dry runs do not include placement, and other replicas do not notice when
    # this one is killed.
    address: str = setting(
        "", "address at which the webhook reaches this process", shown="the host"
    )
    # On the loopback only: users need the right to forward ports to the pod.
    inspect_port: int = setting(8081, "inspection, on 127.0.0.1")
    # That scheduler holds the Lease for both.
    extender_port: int = setting(0, "a scheduler in the same pod, on 127.0.0.1", shown="0: none")
    # A new leader waits for this time before it lists objects.
    write_seconds: float = setting(2.0, "timeout of a write", most=60)
    lease_seconds: int = setting(15, "others may take the Lease after this time", most=600)
    renew_seconds: float = setting(
        10.0, "a leader stops if it cannot renew for this time", most=600
    )
    retry_seconds: float = setting(2.0, "between two renewals, and two attempts to lead", most=600)

    @property
    def fit_address(self) -> str:
        """The published address for the webhook, as `host:port`; empty if unknown."""
        host = self.address or self.host
        if _is_any(host):
            return ""
        return f"[{host}]:{self.fit_port}" if ":" in host else f"{host}:{self.fit_port}"

    def check(self) -> None:
        """Check that a leader that cannot renew stops before another process may take the Lease."""
        if not 0 < self.retry_seconds < self.renew_seconds < self.lease_seconds:
            raise SettingsError(
                f"{variable('renew_seconds')}={self.renew_seconds:g}: write more than "
                f"{variable('retry_seconds')} ({self.retry_seconds:g}) and less than "
                f"{variable('lease_seconds')} ({self.lease_seconds})"
            )


def _is_any(host: str) -> bool:
    """Return whether a host to listen on stands for all addresses, which no client can use."""
    try:
        return not host or ip_address(host).is_unspecified
    except ValueError:
        return False
