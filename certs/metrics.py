"""Metrics of certificates."""

from prometheus_client import CollectorRegistry, Counter

from certs.authority import expiry
from certs.ca_bundle import Target, trusts
from certs.outcome import Outcome
from certs.reconciler import Reconciler
from certs.rotation import Phase
from certs.transition import Action
from linkwise.runtime.process.metrics import Gauges


class Transitions:
    """Counts changes of the CAs."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._counter = Counter(
            "linkwise_certs_transitions_total",
            "Changes of the CAs by this process.",
            ("action",),
            registry=registry,
        )
        for action in Action:
            self._counter.labels(action.value)

    def count(self, action: Action) -> None:
        """Count a change."""
        self._counter.labels(action.value).inc()


def register_metrics(registry: CollectorRegistry, reconciler: Reconciler) -> None:
    """Register gauges of the last pass of a reconciler."""

    def phases() -> dict[str, float | None]:
        last = reconciler.outcome
        if last is None or last.phase is None:
            return {}
        return {phase.value: float(phase is last.phase) for phase in Phase}

    def phase_start() -> float | None:
        last = reconciler.outcome
        return last.since if last and last.phase else None

    def skew() -> float | None:
        last = reconciler.outcome
        return last.skew if last else None

    Gauges(
        registry,
        "linkwise_certs_expiry_timestamp_seconds",
        "Expiry of a certificate, in seconds since 1970.",
        lambda: _expiries(reconciler.outcome),
        label="certificate",
    )
    Gauges(
        registry,
        "linkwise_certs_trusted",
        "1 if the caBundle of a webhook configuration has the CA of each serving certificate.",
        lambda: _trusted(reconciler.outcome),
        label="registration",
    )
    Gauges(
        registry,
        "linkwise_certs_phase",
        "1 for the present phase of the rotation of the CA.",
        phases,
        label="phase",
    )
    Gauges(
        registry,
        "linkwise_certs_phase_start_timestamp_seconds",
        "When the present phase began, in seconds since 1970.",
        {"": phase_start},
    )
    Gauges(
        registry,
        "linkwise_certs_clock_skew_seconds",
        "By how much the clock of this process is ahead of the API server's.",
        {"": skew},
    )


def _expiries(outcome: Outcome | None) -> dict[str, float | None]:
    if outcome is None:
        return {}
    leaves = outcome.snapshot.leaves.items()
    expiries: dict[str, float | None] = {
        server.name: expiry(stored.value.certificate) for server, stored in leaves if stored.value
    }
    return expiries if outcome.ca_expiry is None else {**expiries, "ca": outcome.ca_expiry}


def _trusted(outcome: Outcome | None) -> dict[str, float | None]:
    if outcome is None:
        return {}
    leaves = [stored.value for stored in outcome.snapshot.leaves.values() if stored.value]

    def trusted(target: Target) -> float | None:
        configuration = outcome.snapshot.configurations.get(target)
        if configuration is None or not leaves:
            return None
        return float(all(trusts(configuration, leaf.certificate) for leaf in leaves))

    return {target.resource: trusted(target) for target in outcome.snapshot.configurations}
