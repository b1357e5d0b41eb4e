"""`python -m webhook`: the process of the admission webhook."""

import linkwise.runtime.process.missing_package  # noqa: F401 - before packages that it reports

# isort: split

import asyncio
import os
import sys
from functools import partial
from pathlib import Path

import structlog
from prometheus_client import CollectorRegistry

from linkwise.cluster.keys import SCORER_SERVER_NAME
from linkwise.runtime.http.connection_limiter import REASONS
from linkwise.runtime.http.limits import Limits
from linkwise.runtime.http.observers import RequestMetrics, log_requests
from linkwise.runtime.http.probes import PROBE_LIMITS, Condition, probe_routes
from linkwise.runtime.http.server import Server, serve
from linkwise.runtime.http.tls import ServingCertificate
from linkwise.runtime.http.types import Observers
from linkwise.runtime.kube.client import Kube
from linkwise.runtime.process.lifecycle import start, tune_gc
from linkwise.runtime.process.metrics import Counters, measure_loop_lag, new_registry
from linkwise.runtime.process.worker import Worker, worker
from webhook.app import Admission
from webhook.claim_reader import ClaimReader
from webhook.dry_run_api import DryRun
from webhook.informers import Informers
from webhook.metrics import Metrics, register_state
from webhook.owner_review import OwnerReviews
from webhook.scorer_client import SCORER_TIMEOUT, ScorerClient
from webhook.settings import Settings

_DRY_RUN_LIMITS = Limits(
    body_bytes=256 << 10,
    bytes_in_flight=4 << 20,
    requests=100,
    connections=150,
    peer_connections=100,
    peer_half_sent=10,
)
"""Low limits for the dry-run API, so that admission keeps most of the CPU."""

_log = structlog.get_logger()


def main() -> int:
    """Run until a termination signal; return the exit code."""
    instance = os.environ.get("HOSTNAME", "")
    return start(Settings, lambda settings, stop: admission(settings, instance, stop))


async def admission(settings: Settings, instance: str, stop: asyncio.Event) -> None:
    """Serve until `stop` is set, then drain.

    Args:
        settings: Addresses, files and clients.
        instance: Name of this replica, for Events.
        stop: Set on a termination signal.
    """
    registry = new_registry()
    measure_loop_lag(registry)
    observers: Observers = (log_requests(), RequestMetrics(registry))
    files = Path(settings.certificate), Path(settings.key)
    clients = Path(settings.client_ca) if settings.client_ca else None
    certificate = ServingCertificate(*files, client_ca_file=clients)
    # The same files without client authentication: users of dry runs have tokens.
    dry_run_certificate = ServingCertificate(*files)
    async with (
        Kube.from_settings(settings, os.environ) as kube,
        worker(
            "webhook.config_validation",
            "linkwise.admission.dry_run.dryrun",
            "linkwise.admission.dry_run.owner_warnings",
        ) as child,
        asyncio.TaskGroup() as group,
    ):
        informers = Informers(kube, instance=instance)
        register_state(
            registry,
            config=lambda: informers.config,
            policy_age=informers.policy_age,
            informers=informers.watch_ages(),
            expiry=lambda: certificate.expiry,
        )
        claims = ClaimReader(kube) if settings.client_ca else None
        scorer = ScorerClient(kube, partial(_scorer_client, settings))
        owners = OwnerReviews(informers, child, scorer if settings.client_ca else None)
        admission_routes = Admission(informers, Metrics(registry), child, claims).routes()
        tasks = [
            group.create_task(informers.run()),
            group.create_task(certificate.reload_when_changed()),
            group.create_task(dry_run_certificate.reload_when_changed()),
        ]
        async with (
            serve(
                [*admission_routes, *owners.routes()],
                host=settings.host,
                port=settings.port,
                context=certificate.context,
                observers=observers,
            ) as server,
            serve(
                DryRun(informers, kube, scorer, child).routes(),
                host=settings.host,
                port=settings.dry_run_port,
                context=dry_run_certificate.context,
                limits=_DRY_RUN_LIMITS,
                observers=observers,
            ) as dry_run_server,
            serve(
                probe_routes(registry, _conditions(settings, certificate, informers, server)),
                host=settings.host,
                port=settings.probe_port,
                limits=PROBE_LIMITS,
            ),
        ):
            _register_limits(registry, child, (server, dry_run_server))
            _log.info("Listening", port=server.port)
            tune_gc()
            await stop.wait()
            _log.info("Draining")
            await server.drain(quiet=settings.drain_seconds)
        for task in tasks:
            task.cancel()


def _register_limits(
    registry: CollectorRegistry, child: Worker, servers: tuple[Server, ...]
) -> None:
    """Register metrics of exceeded limits and dropped connections."""
    Counters(
        registry,
        "linkwise_untrusted_texts_given_up",
        "ConfigMaps and manifests whose reading exceeded a limit.",
        {"": lambda: child.given_up},
    )
    Counters(
        registry,
        "linkwise_http_dropped_connections",
        "Connections dropped to make room.",
        {reason: partial(_dropped, servers, reason) for reason in REASONS},
        label="reason",
    )


def _dropped(servers: tuple[Server, ...], reason: str) -> int:
    return sum(server.dropped(reason) for server in servers)


def _scorer_client(settings: Settings, address: str) -> Kube:
    """Return a client of the scorer at an address; all our servers share one certificate."""
    return Kube(
        f"https://{address}",
        token_file=Path(settings.scorer_token_file),
        ca_file=Path(settings.scorer_ca_file),
        server_name=SCORER_SERVER_NAME,
        timeout=SCORER_TIMEOUT,
    )


def _conditions(
    settings: Settings, certificate: ServingCertificate, informers: Informers, server: Server
) -> dict[str, Condition]:
    return {
        "draining": lambda: "no new connections are accepted" if server.draining else None,
        "certificate": lambda: certificate.problem(settings.own_host, server.port),
        "watches": informers.not_ready_reason,
    }


if __name__ == "__main__":
    sys.exit(main())
