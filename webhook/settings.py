"""Settings of the webhook process, read from the environment."""

from dataclasses import dataclass

from linkwise.runtime.process.settings import ProcessSettings, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(ProcessSettings):
    """One field for each variable `LINKWISE_<NAME>`; an unset or empty one has its default."""

    host: str = setting("", "address to listen on", shown="all addresses")
    probe_port: int = setting(8080, "probes and metrics, without TLS")
    certificate: str = setting("/etc/linkwise/tls/tls.crt", "certificate and chain")
    key: str = setting("/etc/linkwise/tls/tls.key", "its key")
    port: int = setting(8443, "admission")
    dry_run_port: int = setting(8444, "dry runs")
    client_ca: str = setting("", "file of the CAs of clients of admission")
    # The grace period of the pod covers 60 s.
    drain_seconds: float = setting(
        15.0, "after SIGTERM: it ends after this idle time, of 60 at most", most=60
    )
    scorer_token_file: str = setting("/etc/linkwise/scorer/token", "token for the scorer")
    scorer_ca_file: str = setting("/etc/linkwise/scorer/ca.crt", "CA of the scorer's certificate")

    @property
    def own_host(self) -> str:
        """Host by which the process reaches itself."""
        return self.host or "localhost"
