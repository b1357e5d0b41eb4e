"""`python -m certs`: the process that issues, renews and distributes certificates."""

import linkwise.runtime.process.missing_package  # noqa: F401 - before packages that it reports

# isort: split

import asyncio
import os
import sys

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from certs.authority import KeySource
from certs.ca_bundle import Target
from certs.issuer import Issuer
from certs.metrics import Transitions, register_metrics
from certs.observer import Observer
from certs.reconciler import Pass, Reconciler
from certs.reporter import Reporter
from certs.settings import WEBHOOK_CONFIGURATIONS, Mode, Settings
from certs.store import CA_SECRET, Store
from linkwise.cluster.keys import CERTS
from linkwise.runtime.http.probes import PROBE_LIMITS, probe_routes
from linkwise.runtime.http.server import serve
from linkwise.runtime.kube.client import Kube
from linkwise.runtime.kube.event_recorder import EventRecorder
from linkwise.runtime.process.clock import monotonic, wall
from linkwise.runtime.process.lifecycle import run_until, start, tune_gc
from linkwise.runtime.process.metrics import measure_loop_lag, new_registry

TARGETS = tuple(Target(*identity) for identity in WEBHOOK_CONFIGURATIONS)
KEY_SOURCE = KeySource(lambda: ec.generate_private_key(ec.SECP256R1()), x509.random_serial_number)


def main() -> int:
    """Run until a termination signal; return 2 where the environment is invalid."""
    return start(Settings, run)


async def run(settings: Settings, stop: asyncio.Event) -> None:
    """Reconcile certificates, and serve probes and metrics, until `stop` is set."""
    registry = new_registry()
    measure_loop_lag(registry)
    async with Kube.from_settings(settings, os.environ) as kube:
        servers = settings.issuance.servers
        store = Store(kube, settings.namespace, servers, TARGETS)
        work = _work(settings, kube, store, Transitions(registry))
        secrets = [server.secret for server in servers]
        if settings.mode is Mode.SELF:
            secrets.append(CA_SECRET)
        reconciler = Reconciler(kube, work, store.collection, secrets, TARGETS)
        register_metrics(registry, reconciler)
        routes = probe_routes(registry, {"certificates": reconciler.not_ready_reason})
        async with serve(routes, host=settings.host, port=settings.probe_port, limits=PROBE_LIMITS):
            tune_gc()
            await run_until(stop, reconciler.run())


def _work(settings: Settings, kube: Kube, store: Store, transitions: Transitions) -> Pass:
    instance = os.environ.get("HOSTNAME", "")
    recorder = EventRecorder(kube, CERTS, instance, wall)
    reporter = Reporter(kube, recorder, settings.namespace)
    if settings.mode is Mode.SELF:
        return Issuer(
            kube,
            store,
            reporter,
            settings.issuance,
            key_source=KEY_SOURCE,
            clock=wall,
            monotonic=monotonic,
            on_transition=transitions.count,
        )
    return Observer(
        kube,
        store,
        reporter,
        settings.issuance,
        wall,
        mode=settings.mode,
        injects=settings.mode is Mode.PROVIDED,
    )


if __name__ == "__main__":
    sys.exit(main())
