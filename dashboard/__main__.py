"""`python -m dashboard`: the process that serves the page in the cluster."""

import linkwise.runtime.process.missing_package  # noqa: F401 - before packages that it reports

# isort: split

import asyncio
import os
import secrets
import sys
from pathlib import Path

from dashboard.access import Access
from dashboard.entrance import Hosts, TokenEntrance
from dashboard.feeds import CLIENTS, Feeds
from dashboard.settings import Settings
from linkwise.dashboard.feed import WAIT
from linkwise.dashboard.server import LOOPBACK, Dashboard
from linkwise.runtime.http.limits import Limits
from linkwise.runtime.http.observers import RequestMetrics, log_requests
from linkwise.runtime.http.probes import PROBE_LIMITS, probe_routes
from linkwise.runtime.http.server import serve
from linkwise.runtime.http.tls import ServingCertificate
from linkwise.runtime.http.types import Observers
from linkwise.runtime.kube.client import Kube
from linkwise.runtime.process.clock import monotonic, wall
from linkwise.runtime.process.lifecycle import run_until, start, tune_gc
from linkwise.runtime.process.metrics import measure_loop_lag, new_registry
from linkwise.views.live.watch import ClusterWatch

LIMITS = Limits(
    body_bytes=1 << 20,
    bytes_in_flight=128 << 20,
    requests=2 * CLIENTS,
    connections=3 * CLIENTS,
    peer_connections=3 * CLIENTS,
    peer_half_sent=CLIENTS // 2,
    answer_seconds=WAIT + 10,
)
"""An Ingress sends the requests of all people from one address."""
TRIAL_SECONDS = 5.0
"""The longest time for one manifest that is tried [s]."""
_DEFAULT_NAMESPACE = "default"


def main() -> int:
    """Run until a termination signal; return 2 where the environment is invalid."""
    return start(Settings, run)


async def run(settings: Settings, stop: asyncio.Event) -> None:
    """Watch the cluster, and serve the page, until `stop` is set."""
    registry = new_registry()
    measure_loop_lag(registry)
    observers: Observers = (log_requests(), RequestMetrics(registry))
    certificate = ServingCertificate(Path(settings.certificate), Path(settings.key))
    feeds = Feeds(wall, monotonic, secrets.token_bytes(32))
    probes = probe_routes(
        registry, {"watches": feeds.missing, "certificate": lambda: certificate.error}
    )
    async with Kube.from_settings(settings, os.environ) as kube:
        access = Access(kube, monotonic, feeds.namespaces)
        entrance = TokenEntrance(Hosts(settings.names), access, feeds)
        routes = Dashboard(entrance, TRIAL_SECONDS).routes()
        watch = ClusterWatch(kube, _DEFAULT_NAMESPACE, ())
        async with (
            serve(probes, host=settings.host, port=settings.probe_port, limits=PROBE_LIMITS),
            serve(
                routes,
                host=settings.host,
                port=settings.port,
                context=certificate.context,
                limits=LIMITS,
                observers=observers,
            ),
            serve(
                routes,
                host=LOOPBACK,
                port=settings.local_port,
                limits=LIMITS,
                observers=observers,
            ),
        ):
            tune_gc()
            reloading = asyncio.create_task(certificate.reload_when_changed())
            try:
                await run_until(stop, watch.run(feeds.publish, feeds.report))
            finally:
                reloading.cancel()
                feeds.close()


if __name__ == "__main__":
    sys.exit(main())
