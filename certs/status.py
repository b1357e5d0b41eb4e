"""Describe the state of all certificates for people and scripts."""

from collections.abc import Iterable, Iterator

from cryptography import x509
from cryptography.hazmat.primitives.hashes import SHA256

from certs.authorities import Authorities
from certs.authority import expiry, is_issued_by, renewal_time, subject_alt_names
from certs.leaf import Leaf, Server, unusable_reason
from certs.rotation import IssuancePolicy, Phase, required_wait
from certs.snapshot import Snapshot, Stored
from linkwise.cluster.objects.certificate_state import (
    AuthorityStatus,
    CertificateState,
    NextStep,
    ServerStatus,
)
from linkwise.runtime.process.clock import rfc3339

_WORK = {
    Phase.ANNOUNCE: "wait, when every caBundle and every Secret has the next CA",
    Phase.SWITCH: "retire the previous CA, when every server has a new certificate",
}


def state_of(
    snapshot: Snapshot,
    authorities: Authorities,
    policy: IssuancePolicy,
    phase: Phase,
    now: float,
    since: float,
) -> CertificateState:
    """Return the state of certificates that this process issues.

    Args:
        snapshot: The present objects.
        authorities: The CAs.
        policy: Servers and durations.
        phase: Of the rotation.
        now: [s since 1970].
        since: When the phase began [s since 1970].
    """
    return CertificateState(
        mode="self",
        phase=phase,
        since=rfc3339(since),
        propagation_seconds=round(policy.propagation),
        authorities=tuple(_authorities(authorities)),
        servers=tuple(servers_of(snapshot, authorities.certificates, now)),
        next=_next_step(snapshot, authorities, policy, phase, since),
    )


def servers_of(
    snapshot: Snapshot, authorities: Iterable[x509.Certificate], now: float
) -> Iterator[ServerStatus]:
    """Yield the state of each leaf."""
    trusted = tuple(authorities)
    for server, stored in snapshot.leaves.items():
        yield _server(server, stored, trusted, now)


def authority_of(certificate: x509.Certificate, role: str) -> AuthorityStatus:
    """Return the state of a CA."""
    return AuthorityStatus(
        role=role,
        serial=f"{certificate.serial_number:x}",
        sha256=fingerprint(certificate),
        not_before=_start(certificate),
        not_after=rfc3339(expiry(certificate)),
    )


def fingerprint(certificate: x509.Certificate) -> str:
    """Return the SHA-256 fingerprint of a certificate, in hexadecimal."""
    return certificate.fingerprint(SHA256()).hex()


def _authorities(authorities: Authorities) -> Iterator[AuthorityStatus]:
    for certificate in authorities.previous:
        yield authority_of(certificate, "previous")
    for pair, role in ((authorities.current, "current"), (authorities.next, "next")):
        if pair:
            yield authority_of(pair.certificate, role)


def _server(
    server: Server, stored: Stored[Leaf], trusted: tuple[x509.Certificate, ...], now: float
) -> ServerStatus:
    leaf = stored.value
    if leaf is None:
        return ServerStatus(server=server.name, secret=server.secret, problem=stored.error)
    certificate = leaf.certificate
    issuer = next((each for each in trusted if is_issued_by(certificate, each)), None)
    return ServerStatus(
        server=server.name,
        secret=server.secret,
        problem=unusable_reason(leaf, trusted, now),
        serial=f"{certificate.serial_number:x}",
        issuer=fingerprint(issuer) if issuer else "",
        not_before=_start(certificate),
        not_after=rfc3339(expiry(certificate)),
        names=subject_alt_names(certificate),
    )


def _next_step(
    snapshot: Snapshot,
    authorities: Authorities,
    policy: IssuancePolicy,
    phase: Phase,
    since: float,
) -> NextStep:
    if phase in _WORK:
        return NextStep(text=_WORK[phase])
    if phase is not Phase.STABLE:
        text = "switch to the next CA" if phase is Phase.WAIT else "remove the previous CA"
        return NextStep(text=text, at=rfc3339(since + required_wait(snapshot, policy)))
    leaves = [stored.value.certificate for stored in snapshot.leaves.values() if stored.value]
    due = min((renewal_time(leaf) for leaf in leaves), default=0.0)
    current = authorities.current
    if current and renewal_time(current.certificate) <= due:
        return NextStep(text="announce a new CA", at=rfc3339(renewal_time(current.certificate)))
    return NextStep(text="renew certificates of servers", at=rfc3339(due))


def _start(certificate: x509.Certificate) -> str:
    return rfc3339(certificate.not_valid_before_utc.timestamp())
