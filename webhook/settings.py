"""What a process of the webhook is told by its environment, read once."""

from collections.abc import Mapping
from dataclasses import dataclass


class SettingsError(ValueError):
    """A variable has a value that cannot be; one sentence that names it."""


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

    def text(name: str, default: str) -> str:
        return environment.get(_variable(name)) or default

    def number(name: str, default: float, most: float) -> float:
        given = text(name, str(default))
        try:
            found = float(given)
        except ValueError:
            found = -1
        if not 0 <= found <= most:
            raise SettingsError(f"{_variable(name)}={given}: write a number from 0 to {most:g}")
        return found

    plain = Settings()
    level = text("log_level", plain.log_level)
    if level not in _LEVELS:
        raise SettingsError(f"{_variable('log_level')}={level}: write {', '.join(_LEVELS)}")
    api_server = text("api_server", plain.api_server)
    if not api_server and "KUBERNETES_SERVICE_HOST" not in environment:
        raise SettingsError(f"{_variable('api_server')} is not set, and this is no pod: set it")
    return Settings(
        host=text("host", plain.host),
        port=int(number("port", plain.port, 65535)),
        dry_run_port=int(number("dry_run_port", plain.dry_run_port, 65535)),
        probe_port=int(number("probe_port", plain.probe_port, 65535)),
        certificate=text("certificate", plain.certificate),
        key=text("key", plain.key),
        client_ca=text("client_ca", plain.client_ca),
        api_server=api_server,
        api_token_file=text("api_token_file", plain.api_token_file),
        api_ca_file=text("api_ca_file", plain.api_ca_file),
        drain_seconds=number("drain_seconds", plain.drain_seconds, 600),
        log_level=level,
    )


_LEVELS = ("debug", "info", "warning", "error")


def _variable(name: str) -> str:
    return f"LINKWISE_{name.upper()}"
