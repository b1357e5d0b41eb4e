"""What metrics tell of admission: verdicts, findings, and how old what it knows is."""

from collections.abc import Callable, Iterable, Mapping

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from policy.snapshot import PolicySnapshot
from runtime.process.metrics import Gauges
from webhook.active_config import SOURCES, ActiveConfig
from webhook.outcome import Outcome, Verdict


class Metrics:
    """Counters of decisions. Nothing that a user chooses becomes a label."""

    def __init__(self, registry: CollectorRegistry) -> None:
        verdicts = Counter(
            "linkwise_admission_reviews",
            "Pods judged, by verdict, and whether the API server only tried.",
            ("verdict", "dry_run"),
            registry=registry,
        )
        # Looking a child up by its labels costs more than counting with it.
        self._verdicts = {
            (verdict, tried): verdicts.labels(verdict.value, str(tried).lower())
            for verdict in Verdict
            for tried in (False, True)
        }
        self._findings = Counter(
            "linkwise_admission_findings",
            "Findings told, by code.",
            ("code",),
            registry=registry,
        )
        self._waits = Counter(
            "linkwise_admission_namespace_waits",
            "Reviews that waited for a namespace the watch had not shown, and whether it came.",
            ("came",),
            registry=registry,
        )

    def count_review(self, outcome: Outcome, *, dry_run: bool) -> None:
        """Count one pod."""
        self._verdicts[outcome.verdict, dry_run].inc()
        for finding in outcome.findings:
            self._findings.labels(finding.code.value).inc()

    def count_wait(self, *, came: bool) -> None:
        """Count one wait for a namespace."""
        self._waits.labels(str(came).lower()).inc()


def register_state(
    registry: CollectorRegistry,
    *,
    config: Callable[[], ActiveConfig],
    policy_age: Callable[[], float],
    informers: Mapping[str, Callable[[], float | None]],
    expiry: Callable[[], float | None],
) -> None:
    """Show what admission stands on whenever metrics are read.

    Args:
        registry: Where.
        config: The decisions in force.
        policy_age: For how long they have been [s].
        informers: For how long nothing was heard of each resource [s].
        expiry: When the certificate ends [s since 1970].
    """
    _PolicyInfo(registry, lambda: config().snapshot)
    one = "linkwise_policy_"
    Gauges(registry, f"{one}age_seconds", "Since the policy changed.", {"": policy_age})
    refused = {
        source.name: (lambda source=source: float(source in config().refused)) for source in SOURCES
    }
    Gauges(
        registry,
        f"{one}refused",
        "1 where a ConfigMap cannot be taken and the last good one stays.",
        refused,
        label="config_map",
    )
    Gauges(
        registry,
        "linkwise_watch_age_seconds",
        "Since a watch was last heard of.",
        informers,
        label="resource",
    )
    Gauges(
        registry,
        "linkwise_certificate_expiry_timestamp_seconds",
        "When the certificate that is served ends.",
        {"": expiry},
    )


class _PolicyInfo(Collector):
    """The generation, with the digest, which is equal in all replicas once they agree."""

    def __init__(self, registry: CollectorRegistry, snapshot: Callable[[], PolicySnapshot]) -> None:
        self._snapshot = snapshot
        registry.register(self)

    def collect(self) -> Iterable[Metric]:
        """Return the sample of this moment."""
        snapshot = self._snapshot()
        family = GaugeMetricFamily(
            "linkwise_policy_generation",
            "Changes of policy and profiles that this process has taken.",
            labels=("digest",),
        )
        family.add_metric((snapshot.digest,), snapshot.generation)
        return (family,)
