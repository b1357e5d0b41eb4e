"""Metrics of admission: verdicts, findings, and the age of its state."""

from collections.abc import Callable, Iterable, Mapping

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from linkwise.admission.decide.outcome import Outcome, Verdict
from linkwise.policy.active_config import SOURCES, ActiveConfig
from linkwise.policy.snapshot import PolicySnapshot
from linkwise.runtime.process.metrics import Gauges


class Metrics:
    """Counters of reviews. No label has a value that users choose."""

    def __init__(self, registry: CollectorRegistry) -> None:
        verdicts = Counter(
            "linkwise_admission_reviews",
            "Reviews of pods, by verdict and dry run.",
            ("verdict", "dry_run"),
            registry=registry,
        )
        # Cached, since the lookup of a child by its labels costs more than its increment.
        self._verdicts = {
            (verdict, dry_run): verdicts.labels(verdict.value, str(dry_run).lower())
            for verdict in Verdict
            for dry_run in (False, True)
        }
        self._findings = Counter(
            "linkwise_admission_findings",
            "Findings, by code.",
            ("code",),
            registry=registry,
        )
        self._waits = Counter(
            "linkwise_admission_namespace_waits",
            "Reviews that waited for a new namespace, and whether it appeared in time.",
            ("came",),
            registry=registry,
        )

    def count_review(self, outcome: Outcome, *, dry_run: bool) -> None:
        """Count one review of a pod."""
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
    """Register metrics of the state, which are computed on each scrape.

    Args:
        registry: Registry of this process.
        config: Policy and profiles in force.
        policy_age: For how long they have been in force [s].
        informers: Age of the last watch event of each resource [s].
        expiry: Expiry of the serving certificate [s since 1970].
    """
    _PolicyInfo(registry, lambda: config().snapshot)
    Gauges(
        registry,
        "linkwise_policy_age_seconds",
        "Seconds since the policy or a profile changed.",
        {"": policy_age},
    )
    refused = {
        source.name: (lambda source=source: float(source in config().refused)) for source in SOURCES
    }
    Gauges(
        registry,
        "linkwise_policy_refused",
        "1 if a ConfigMap is invalid and its last valid version stays in force.",
        refused,
        label="config_map",
    )
    Gauges(
        registry,
        "linkwise_watch_age_seconds",
        "Seconds since the last event of a watch.",
        informers,
        label="resource",
    )
    Gauges(
        registry,
        "linkwise_certificate_expiry_timestamp_seconds",
        "Expiry of the serving certificate, in seconds since 1970.",
        {"": expiry},
    )


class _PolicyInfo(Collector):
    """The generation, with the digest as label, which is equal in all converged replicas."""

    def __init__(self, registry: CollectorRegistry, snapshot: Callable[[], PolicySnapshot]) -> None:
        self._snapshot = snapshot
        registry.register(self)

    def collect(self) -> Iterable[Metric]:
        """Return the present sample."""
        snapshot = self._snapshot()
        family = GaugeMetricFamily(
            "linkwise_policy_generation",
            "Changes of policy and profiles that this process has loaded.",
            labels=("digest",),
        )
        family.add_metric((snapshot.digest,), snapshot.generation)
        return (family,)
