"""`python -m certs`: the process that issues, renews and distributes certificates."""

import runtime.process.missing_package  # noqa: F401 - before packages that it reports

# isort: split

import asyncio
import os
import sys
from functools import partial

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from prometheus_client import CollectorRegistry

from certs.authority import KeySource
from certs.ca_bundle import Target
from certs.reconciler import Reconciler
from certs.settings import SECRET, WEBHOOK_CONFIGURATIONS, Settings, read_settings
from certs.store import Store
from runtime.http.probes import probe_routes
from runtime.http.server import serve
from runtime.kube.client import Kube
from runtime.process.clock import wall
from runtime.process.lifecycle import run_until, start, tune_gc
from runtime.process.metrics import Gauges, measure_loop_lag, new_registry

TARGETS = tuple(Target(*identity) for identity in WEBHOOK_CONFIGURATIONS)
KEY_SOURCE = KeySource(lambda: ec.generate_private_key(ec.SECP256R1()), x509.random_serial_number)


def main() -> int:
    """Run until a termination signal; return 2 where the environment is invalid."""
    return start(read_settings, run)


async def run(settings: Settings, stop: asyncio.Event) -> None:
    """Reconcile certificates, and serve probes and metrics, until `stop` is set."""
    registry = new_registry()
    measure_loop_lag(registry)
    async with Kube.from_settings(settings, os.environ) as kube:
        store = Store(kube, settings.namespace, SECRET, settings.issuance, KEY_SOURCE)
        reconciler = Reconciler(kube, store, TARGETS, wall)
        register_metrics(registry, reconciler)
        routes = probe_routes(registry, {"certificates": reconciler.not_ready_reason})
        async with serve(routes, host=settings.host, port=settings.probe_port):
            tune_gc()
            await run_until(stop, reconciler.run())


def register_metrics(registry: CollectorRegistry, reconciler: Reconciler) -> None:
    """Register the metrics of certificates."""

    def expiry(role: str) -> float | None:
        bundle = reconciler.bundle
        pair = None if bundle is None else {"leaf": bundle.leaf, "ca": bundle.signer}[role]
        return None if pair is None else pair.expiry

    Gauges(
        registry,
        "linkwise_certs_expiry_timestamp_seconds",
        "Expiry of a certificate, in seconds since 1970.",
        {role: partial(expiry, role) for role in ("leaf", "ca")},
        label="certificate",
    )
    Gauges(
        registry,
        "linkwise_certs_trusted",
        "1 if the caBundle of a webhook configuration has the CA of the serving certificate.",
        {target.resource: partial(reconciler.trusted, target) for target in TARGETS},
        label="registration",
    )


if __name__ == "__main__":
    sys.exit(main())
