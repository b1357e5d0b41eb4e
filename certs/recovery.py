"""Replace CAs that are missing or cannot be read, so that present leaves stay trusted."""

from collections.abc import Callable, Iterable

from cryptography import x509

from certs.authorities import Authorities
from certs.authority import KeyPair, expiry
from certs.leaf import unusable_reason
from certs.pem import ContentError, read_certificates
from certs.snapshot import Snapshot
from certs.transition import Action, Transition

_MAX_RECOVERED = 8
"""Most CAs that are trusted again after the Secret was lost."""


def recover(snapshot: Snapshot, now: float, new: Callable[[], KeyPair]) -> Transition:
    """Return CAs in place of those that are missing or cannot be read.

    Args:
        snapshot: The present objects.
        now: [s since 1970].
        new: Returns a new CA.
    """
    error = snapshot.authorities.error
    known = _known_authorities(snapshot, now)
    if known and not unusable_leaf(snapshot, known, now):
        announced = Authorities(None, new(), known)
        return Transition(Action.ANNOUNCE, announced, f"{error}: present certificates stay valid")
    return Transition(Action.ISSUE, Authorities(new(), previous=known), error)


def _known_authorities(snapshot: Snapshot, now: float) -> tuple[x509.Certificate, ...]:
    """Return the CAs that servers and API servers trust, oldest first."""
    texts = [stored.value.trusted for stored in snapshot.leaves.values() if stored.value]
    for configuration in snapshot.configurations.values():
        texts += configuration.bundles
    found: dict[x509.Certificate, None] = {}
    for text in texts:
        try:
            found |= dict.fromkeys(read_certificates(text, "bundle"))
        except ContentError:
            continue
    authorities = [each for each in found if _is_authority(each)]
    authorities.sort(key=lambda each: each.not_valid_before_utc)
    return not_expired(authorities, now)[-_MAX_RECOVERED:]


def _is_authority(certificate: x509.Certificate) -> bool:
    try:
        found = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
    except x509.ExtensionNotFound:
        return False
    return found.value.ca


def not_expired(
    certificates: Iterable[x509.Certificate], now: float
) -> tuple[x509.Certificate, ...]:
    """Return the certificates that have not expired."""
    return tuple(each for each in certificates if expiry(each) > now)


def unusable_leaf(
    snapshot: Snapshot, authorities: tuple[x509.Certificate, ...], now: float
) -> str | None:
    """Return why the leaf of some server is not accepted; None where all are, by these CAs.

    A leaf that is missing is accepted: a server uses its last one.
    """
    for server, stored in snapshot.leaves.items():
        error = unusable_reason(stored.value, authorities, now) if stored.value else None
        if error:
            return f"the CA is lost, and the certificate of {server.name} cannot be used: {error}"
    return None
