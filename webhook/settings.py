"""What a process of the webhook is told by its environment, read once."""

from collections.abc import Mapping
from dataclasses import dataclass

from runtime.process.environment import Environment


@dataclass(frozen=True, slots=True)
class Settings:
    """Each is a variable `LINKWISE_<NAME>`; one that is unset or empty has its default."""

    host: str = ""
    """Address to listen on; empty for all."""
    port: int = 8443
    """Of admission."""
    dry_run_port: int = 8444
    probe_port: int = 8080
    """Of probes and metrics, without TLS."""
    certificate: str = "/etc/linkwise/tls/tls.crt"
    """File of the serving certificate and its chain."""
    key: str = "/etc/linkwise/tls/tls.key"
    client_ca: str = ""
    """File of the CAs that sign API servers' client certificates; empty to ask for none."""
    api_server: str = ""
    """Such as `https://127.0.0.1:6443`; empty for the one that a pod is given."""
    api_token_file: str = ""
    """Read where an API server is named, and so is the next."""
    api_ca_file: str = ""
    scorer_token_file: str = "/etc/linkwise/scorer/token"  # noqa: S105 - its path.
    """As whom the scorer is asked whether pods would fit; read again for each dry run."""
    scorer_ca_file: str = "/etc/linkwise/scorer/ca.crt"
    """Who signed its certificate."""
    drain_seconds: float = 15
    """Once told to end: without a request for so long, nobody comes any more [s]."""
    log_level: str = "info"

    @property
    def own_host(self) -> str:
        """Where the process reaches itself."""
        return self.host or "localhost"


def read_settings(environment: Mapping[str, str]) -> Settings:
    """Return what the environment says.

    Raises:
        SettingsError: A value cannot be.
    """
    plain, given = Settings(), Environment(environment)
    level, api_server = given.level(), given.api_server()
    return Settings(
        host=given.text("host", plain.host),
        port=int(given.number("port", plain.port, 65535)),
        dry_run_port=int(given.number("dry_run_port", plain.dry_run_port, 65535)),
        probe_port=int(given.number("probe_port", plain.probe_port, 65535)),
        certificate=given.text("certificate", plain.certificate),
        key=given.text("key", plain.key),
        client_ca=given.text("client_ca", plain.client_ca),
        api_server=api_server,
        api_token_file=given.text("api_token_file", plain.api_token_file),
        api_ca_file=given.text("api_ca_file", plain.api_ca_file),
        scorer_token_file=given.text("scorer_token_file", plain.scorer_token_file),
        scorer_ca_file=given.text("scorer_ca_file", plain.scorer_ca_file),
        drain_seconds=given.number("drain_seconds", plain.drain_seconds, 600),
        log_level=level,
    )
