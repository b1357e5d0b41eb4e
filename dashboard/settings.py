"""Settings of the dashboard process, read from the environment."""

from dataclasses import dataclass

from linkwise.cluster.keys import DASHBOARD, POLICY_NAMESPACE
from linkwise.runtime.process.settings import ProcessSettings, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(ProcessSettings):
    """One field for each variable `LINKWISE_<NAME>`; an unset or empty one has its default."""

    host: str = setting("", "address to listen on", shown="all addresses")
    port: int = setting(8443, "the page, by HTTPS")
    local_port: int = setting(8081, "the page on 127.0.0.1, by HTTP")
    probe_port: int = setting(8080, "probes and metrics, without TLS")
    hosts: str = setting("", "names of the page beside its Service's, comma-separated")
    certificate: str = setting("/etc/linkwise/tls/tls.crt", "certificate and chain")
    key: str = setting("/etc/linkwise/tls/tls.key", "its key")

    @property
    def names(self) -> frozenset[str]:
        """All names under which the page is served."""
        service = f"{DASHBOARD}.{POLICY_NAMESPACE}.svc"
        own = (name.strip().lower() for name in self.hosts.split(","))
        return frozenset((service, f"{service}.cluster.local", *filter(None, own)))
