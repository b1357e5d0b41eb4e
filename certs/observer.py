"""Modes `provided` and `cert-manager`: others issue the Secrets; observe them, and inject CAs."""

from collections.abc import Sequence

from cryptography import x509

from certs.authority import expiry, is_issued_by
from certs.ca_bundle import inject_ca_bundle
from certs.clock import skew_of
from certs.outcome import Outcome
from certs.pem import ContentError, certificates_pem, read_certificates
from certs.reporter import Reporter
from certs.rotation import IssuancePolicy
from certs.snapshot import Snapshot
from certs.status import authority_of, servers_of
from certs.store import Store
from linkwise.cluster.objects.certificate_state import CertificateState, NextStep
from linkwise.runtime.kube.client import Kube
from linkwise.runtime.process.clock import Clock, rfc3339


class NotUsableError(Exception):
    """Certificates that others issue cannot be used; the text says which, and why."""


class Observer:
    """Publishes the state of certificates that other software or people issue."""

    def __init__(  # noqa: PLR0913 - each is one part of the outside world.
        self,
        kube: Kube,
        store: Store,
        reporter: Reporter,
        policy: IssuancePolicy,
        clock: Clock,
        *,
        mode: str,
        injects: bool,
    ) -> None:
        """Prepare the observer.

        Args:
            kube: Client of the API server.
            store: The Secrets and webhook configurations.
            reporter: Publishes the state.
            policy: The servers; durations are not used.
            clock: The wall clock [s since 1970].
            mode: Its name.
            injects: Whether the CAs of the Secrets are written into each `caBundle`.
        """
        self._kube, self._store, self._reporter = kube, store, reporter
        self._policy, self._clock = policy, clock
        self._mode, self._injects = mode, injects
        self._next = "the first certificate expires"
        if not injects:
            self._next = f"cert-manager renews the certificates: {self._next}"

    async def reconcile(self) -> Outcome:
        """Make one pass.

        Raises:
            KubeError: A read or a write failed.
            NotUsableError: A certificate cannot be used.
        """
        snapshot = await self._store.read_provided()
        now = self._clock()
        trusted = _trusted(snapshot)
        if self._injects and trusted:
            for target, configuration in snapshot.configurations.items():
                await inject_ca_bundle(self._kube, target, configuration, certificates_pem(trusted))
        servers = tuple(servers_of(snapshot, trusted, now))
        ends = min((each.not_after for each in servers if each.not_after), default=None)
        since = await self._reporter.publish(
            now,
            lambda since: CertificateState(
                mode=self._mode,
                phase="",
                since=rfc3339(since),
                propagation_seconds=0,
                authorities=tuple(authority_of(each, "current") for each in trusted),
                servers=servers,
                next=NextStep(text=self._next, at=ends),
            ),
        )
        problems = [f"{each.secret}: {each.problem}" for each in servers if each.problem]
        if problems:
            raise NotUsableError("; ".join(problems))
        skew = skew_of(snapshot, now)
        return Outcome(snapshot, _ca_expiry(snapshot, trusted), None, since, None, skew)


def _trusted(snapshot: Snapshot) -> tuple[x509.Certificate, ...]:
    """Return the CAs of all Secrets, so that servers can change to another CA one by one."""
    found: dict[x509.Certificate, None] = {}
    for stored in snapshot.leaves.values():
        if stored.value is None:
            continue
        try:
            found |= dict.fromkeys(read_certificates(stored.value.trusted, "ca.crt"))
        except ContentError:
            continue
    return tuple(found)


def _ca_expiry(snapshot: Snapshot, trusted: Sequence[x509.Certificate]) -> float:
    """Return when the first server has no valid CA [s since 1970]; each has a CA now."""
    leaves = [stored.value.certificate for stored in snapshot.leaves.values() if stored.value]
    return min(max(expiry(ca) for ca in trusted if is_issued_by(leaf, ca)) for leaf in leaves)
