"""The serving certificate (leaf) of one server, as its Secret holds it, and when it is replaced.

| key | content, PEM |
|---|---|
| `tls.crt`, `tls.key` | the leaf |
| `ca.crt` | all trusted CAs |
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from cryptography import x509

from certs.authorities import Authorities
from certs.authority import (
    KeySource,
    expiry,
    general_name,
    is_issued_by,
    is_valid,
    new_leaf,
    renewal_time,
    subject_alt_names,
)
from certs.pem import certificates_pem, content, encode, key_pem, read_certificates, read_key

CERTIFICATE, KEY, TRUSTED = "tls.crt", "tls.key", "ca.crt"


@dataclass(frozen=True, slots=True)
class Server:
    """A server with a leaf."""

    name: str
    """Its component, for people."""
    secret: str
    """Name of its Secret."""
    names: tuple[str, ...]
    """Required DNS names and IP addresses."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A leaf, its key, and the CAs that are trusted beside it."""

    certificate: x509.Certificate
    key: bytes
    """PEM."""
    trusted: bytes
    """PEM."""


def write_leaf(leaf: Leaf) -> dict[str, str]:
    """Return the data of a server's Secret, in base 64."""
    certificate = certificates_pem([leaf.certificate])
    return encode({CERTIFICATE: certificate, KEY: leaf.key, TRUSTED: leaf.trusted})


def read_leaf(data: Mapping[str, str]) -> Leaf:
    """Return the leaf in the data of a server's Secret; its key can be of any type.

    Raises:
        ContentError: The message names the key and the error.
    """
    certificate = read_certificates(content(data, CERTIFICATE), CERTIFICATE)[0]
    pem = content(data, KEY)
    read_key(pem, KEY, certificate)
    return Leaf(certificate, pem, content(data, TRUSTED) if TRUSTED in data else b"")


def unusable_reason(leaf: Leaf, authorities: Sequence[x509.Certificate], now: float) -> str | None:
    """Return why no client accepts a leaf; None where clients that trust these CAs accept it."""
    if not is_valid(leaf.certificate, now):
        start, end = leaf.certificate.not_valid_before_utc, leaf.certificate.not_valid_after_utc
        return f"it is valid from {start:%Y-%m-%dT%H:%M:%SZ} to {end:%Y-%m-%dT%H:%M:%SZ}"
    if not any(is_issued_by(leaf.certificate, authority) for authority in authorities):
        return "it is signed by no trusted CA"
    return None


def renewal_reason(
    leaf: Leaf, server: Server, authorities: Authorities, leaf_duration: float, now: float
) -> str | None:
    """Return why a leaf must be replaced; None where it need not be.

    Args:
        leaf: The present leaf.
        server: Its server.
        authorities: All CAs. Without a current one, a leaf of any trusted CA stays.
        leaf_duration: Validity of a new leaf [s].
        now: [s since 1970].
    """
    if reason := unusable_reason(leaf, authorities.certificates, now):
        return reason
    signer = authorities.current
    if signer is None:
        return None
    if not is_issued_by(leaf.certificate, signer.certificate):
        return "it is not signed by the current CA"
    present = subject_alt_names(leaf.certificate)
    missing = [name for name in server.names if str(general_name(name).value) not in present]
    if missing:
        return f"it lacks the names {', '.join(missing)}"
    # A new leaf expires no later than its CA.
    is_extended = min(now + leaf_duration, signer.expiry) >= expiry(leaf.certificate) + 1
    if is_extended and renewal_time(leaf.certificate) <= now:
        end = datetime.fromtimestamp(expiry(leaf.certificate), UTC)
        return f"it is in its last third and expires at {end:%Y-%m-%dT%H:%M:%SZ}"
    return None


def renew(
    leaf: Leaf | None,
    server: Server,
    authorities: Authorities,
    leaf_duration: float,
    now: float,
    key_source: KeySource,
) -> Leaf:
    """Return a new leaf, signed by the current CA.

    It keeps the names of one that is not due, since they may be those of a replica with other
    settings: if each replica removed the others' names, they would renew in turn forever. Names
    that no replica requires disappear when the leaf is due.

    Raises:
        ValueError: There is no current CA, or it has expired.
    """
    if authorities.current is None:
        raise ValueError("there is no CA that can sign")
    names = server.names
    if leaf and now < renewal_time(leaf.certificate):
        names += subject_alt_names(leaf.certificate)
    pair = new_leaf(authorities.current, names, now, leaf_duration, key_source)
    return Leaf(pair.certificate, key_pem(pair), authorities.bundle)
