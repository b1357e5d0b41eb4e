"""`python -m scorer`: the process that places pods on GPUs."""

import linkwise.runtime.process.missing_package  # noqa: F401 - before packages that it reports

# isort: split

import asyncio
import os
import sys
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from pathlib import Path
from uuid import uuid4

import structlog

from linkwise.cluster.keys import POLICY_NAMESPACE, SCORER_ADDRESS
from linkwise.cluster.keys import SCORER as LEASE
from linkwise.runtime.http.observers import RequestMetrics, log_requests
from linkwise.runtime.http.probes import PROBE_LIMITS, probe_routes
from linkwise.runtime.http.server import serve
from linkwise.runtime.http.tls import ServingCertificate
from linkwise.runtime.http.types import Observers
from linkwise.runtime.kube.client import Kube
from linkwise.runtime.kube.election import Election, Lead
from linkwise.runtime.kube.lease import LeaseTimings
from linkwise.runtime.kube.sidecar_election import SidecarElection
from linkwise.runtime.process.clock import monotonic, wall
from linkwise.runtime.process.lifecycle import run_until, start, tune_gc
from linkwise.runtime.process.metrics import measure_loop_lag, new_registry
from scorer.api.extender import EXTENDER_LIMITS, Extender
from scorer.api.http import WHATIF_LIMITS, Inspection, WhatIf
from scorer.leader import Leader
from scorer.leader_context import LeaderContext
from scorer.metrics import Metrics
from scorer.report.leader_report import LeaderGauges
from scorer.report.lease_annotations import (
    publish_address,
    report_claims_nodes,
    report_nvidia_nodes,
    report_refused_machines,
    report_unfenced_nodes,
)
from scorer.settings import Settings
from scorer.timings import Timings

_LOOPBACK = "127.0.0.1"

_log = structlog.get_logger()


def main() -> int:
    """Run until a signal arrives; return the exit code."""
    instance = os.environ.get("HOSTNAME", "")
    return start(Settings, lambda settings, stop: run_scorer(settings, Timings(), instance, stop))


async def run_scorer(
    settings: Settings, timings: Timings, instance: str, stopped: asyncio.Event
) -> None:
    """Take part in the election, and lead while this process holds the Lease.

    Args:
        settings: Addresses and limits.
        timings: The durations of a leader's work.
        instance: This replica's name.
        stopped: Set when the process must end; then the Lease is released.
    """
    registry = new_registry()
    measure_loop_lag(registry)
    observers: Observers = (log_requests(), RequestMetrics(registry))
    certificate = ServingCertificate(Path(settings.certificate), Path(settings.key))
    async with (
        Kube.from_settings(settings, os.environ) as reading,
        Kube.from_settings(settings, os.environ, timeout=settings.write_seconds) as writing,
    ):
        metrics = Metrics(registry)
        leader = Leader(
            reading,
            writing,
            metrics,
            clock=wall,
            instance=instance,
            wait=settings.write_seconds,
            timings=timings,
        )
        LeaderGauges(registry, leader.report)
        election = _election(reading, settings, instance)
        probes = probe_routes(registry, {"lease": election.missing, "watches": leader.missing})
        async with (
            serve(probes, host=settings.host, port=settings.probe_port, limits=PROBE_LIMITS),
            serve(
                Inspection(leader).routes(),
                host=_LOOPBACK,
                port=settings.inspect_port,
                observers=observers,
            ),
            serve(
                WhatIf(leader, reading, monotonic, limit=timings.retry_limit).routes(),
                host=settings.host,
                port=settings.fit_port,
                context=certificate.context,
                limits=WHATIF_LIMITS,
                observers=observers,
            ),
            _extender(settings, Extender(leader, metrics), observers),
        ):
            _log.info("Listening", port=settings.probe_port)
            tune_gc()
            reloading = asyncio.create_task(certificate.reload_when_changed())
            try:
                await _elect(election, _announced(leader, writing, settings.fit_address), stopped)
            finally:
                reloading.cancel()


def _extender(
    settings: Settings, extender: Extender, observers: Observers
) -> AbstractAsyncContextManager[object]:
    """Serve the extender if a scheduler runs beside this process."""
    if not settings.extender_port:
        return nullcontext()
    return serve(
        extender.routes(),
        host=_LOOPBACK,
        port=settings.extender_port,
        limits=EXTENDER_LIMITS,
        observers=observers,
    )


def _election(kube: Kube, settings: Settings, instance: str) -> Election | SidecarElection:
    timing = LeaseTimings(settings.lease_seconds, settings.renew_seconds, settings.retry_seconds)
    if settings.extender_port:
        # The scheduler in the same pod holds the Lease, so that both lead together.
        return SidecarElection(kube, POLICY_NAMESPACE, LEASE, instance, timing)
    # A restarted container is another process in a pod of the same name.
    address = SCORER_ADDRESS, settings.fit_address
    return Election(kube, POLICY_NAMESPACE, LEASE, f"{instance}_{uuid4()}", timing, address=address)


def _announced(leader: Leader, kube: Kube, address: str) -> Lead:
    """Return the work of a leader, which also annotates its Lease."""

    async def lead(term: int) -> None:
        reports = (
            publish_address(kube, address, term),
            report_nvidia_nodes(
                partial(leader.when_synced, LeaderContext.has_nvidia_nodes), kube, term
            ),
            report_claims_nodes(
                partial(leader.when_synced, LeaderContext.claims_nodes), kube, term
            ),
            report_refused_machines(
                partial(leader.when_synced, LeaderContext.refused_machines), kube, term
            ),
            report_unfenced_nodes(partial(leader.when_synced, LeaderContext.unfenced), kube, term),
        )
        tasks = [asyncio.create_task(report) for report in reports]
        try:
            await leader.lead(term)
        finally:
            for task in tasks:
                task.cancel()

    return lead


async def _elect(election: Election | SidecarElection, lead: Lead, stopped: asyncio.Event) -> None:
    """Take part in the election until the process must end."""

    async def take_part() -> None:
        while True:
            await election.run(lead)

    # The Lease is released before the process ends, so that another replica need not wait.
    await run_until(stopped, take_part())


if __name__ == "__main__":
    sys.exit(main())
