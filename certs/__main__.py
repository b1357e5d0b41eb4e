"""`python -m certs`: keeps the servers' certificate made, renewed and trusted."""

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
from certs.settings import REGISTRATIONS, SECRET, Settings, read_settings
from certs.store import Store
from runtime.http.probes import probe_routes
from runtime.http.server import serve
from runtime.kube.client import Kube
from runtime.process import lifecycle, logs
from runtime.process.clock import wall
from runtime.process.environment import SettingsError
from runtime.process.metrics import Gauges, measure_loop_lag, new_registry

TARGETS = tuple(Target(*words) for words in REGISTRATIONS)
SOURCE = KeySource(lambda: ec.generate_private_key(ec.SECP256R1()), x509.random_serial_number)


def main() -> int:
    """Run until told to end; return 2 when the environment cannot be used."""
    try:
        settings = read_settings(os.environ)
    except SettingsError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    logs.configure(level=settings.log_level)
    lifecycle.run(partial(run, settings))
    return 0


async def run(settings: Settings, told: asyncio.Event) -> None:
    """Keep certificates, and serve probes and metrics, until told to end."""
    registry = new_registry()
    measure_loop_lag(registry)
    async with _kube(settings) as kube:
        store = Store(kube, settings.namespace, SECRET, settings.terms, SOURCE)
        keeper = Reconciler(kube, store, TARGETS, wall)
        show(registry, keeper)
        routes = probe_routes(registry, {"certificates": keeper.missing})
        async with serve(routes, host=settings.host, port=settings.probe_port):
            lifecycle.tune_gc()
            await until(told, keeper)


def _kube(settings: Settings) -> Kube:
    return Kube.named(
        settings.api_server,
        settings.api_token_file,
        settings.api_ca_file,
        os.environ,
    )


async def until(told: asyncio.Event, keeper: Reconciler) -> None:
    """Run a keeper until an event is set; what makes the keeper fail is raised."""
    keeping = asyncio.ensure_future(keeper.run())
    waiting = asyncio.ensure_future(told.wait())
    await asyncio.wait((keeping, waiting), return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if keeping.done():
        keeping.result()
    keeping.cancel()


def show(registry: CollectorRegistry, keeper: Reconciler) -> None:
    """Add the metrics of certificates to a registry."""

    def expiry(of: str) -> float | None:
        bundle = keeper.bundle
        pair = None if bundle is None else {"leaf": bundle.leaf, "ca": bundle.signer}[of]
        return None if pair is None else pair.expiry

    Gauges(
        registry,
        "linkwise_certs_expiry_timestamp_seconds",
        "When a certificate ends, in seconds since 1970.",
        {of: partial(expiry, of) for of in ("leaf", "ca")},
        label="certificate",
    )
    Gauges(
        registry,
        "linkwise_certs_trusted",
        "1 when the caBundle of a registration has the CA that signed the serving certificate.",
        {target.resource: partial(keeper.trusted, target) for target in TARGETS},
        label="registration",
    )


if __name__ == "__main__":
    sys.exit(main())
