"""Decide when certificates are renewed, and renew them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from certs.authority import (
    KeyPair,
    KeySource,
    general_name,
    new_authority,
    new_leaf,
    subject_alt_names,
)
from certs.bundle import Bundle


@dataclass(frozen=True, slots=True)
class IssuancePolicy:
    """Names and durations of the certificates that are issued."""

    names: tuple[str, ...]
    """DNS names and IP addresses of the servers."""
    leaf_duration: float
    """Validity of a leaf [s]; at most a third of its CA's."""
    ca_duration: float
    """Validity of a CA [s]."""


def renewal_reason(bundle: Bundle, names: Sequence[str], now: float) -> str | None:
    """Return why a bundle must be renewed; None where it need not be.

    A reason does not disappear later unless the bundle is renewed.

    Args:
        bundle: The present certificates.
        names: Required names of the leaf.
        now: [s since 1970].
    """
    signer = bundle.signer
    if signer is None:
        return "the leaf is signed by no CA of the bundle"
    present = subject_alt_names(bundle.leaf.certificate)
    missing = [name for name in names if str(general_name(name).value) not in present]
    if missing:
        return f"the leaf lacks the names {', '.join(missing)}"
    for role, pair in (("CA", signer), ("leaf", bundle.leaf)):
        if renewal_time(pair) <= now:
            expiry = datetime.fromtimestamp(pair.expiry, UTC)
            return f"the {role} is in its last third and expires at {expiry:%Y-%m-%dT%H:%M:%SZ}"
    return None


def renewal_time(pair: KeyPair) -> float:
    """Return when the last third of a certificate's validity begins [s since 1970]."""
    return pair.issued + (pair.expiry - pair.issued) * 2 / 3


def next_renewal(bundle: Bundle) -> float:
    """Return the earliest renewal time of a bundle's certificates [s since 1970]."""
    return min(renewal_time(pair) for pair in (bundle.signer, bundle.leaf) if pair)


def renew(
    bundle: Bundle | None, issuance: IssuancePolicy, now: float, key_source: KeySource
) -> Bundle:
    """Return a bundle with a new leaf, and with a new CA where the present one is due.

    A replaced CA stays trusted until it expires, since servers show their old leaf until they have
    reloaded the new one.

    A new leaf keeps the names of one that is not due, since they may be those of a replica with
    other settings: if each replica removed the others' names, they would renew in turn forever.
    Names that no replica requires disappear when the leaf is due.

    Args:
        bundle: The present one; None to issue all certificates.
        issuance: Names and durations.
        now: [s since 1970].
        key_source: Source of keys and serial numbers.
    """
    authorities = bundle.authorities if bundle else ()
    signer = bundle.signer if bundle else None
    names = issuance.names
    if bundle and signer and now < next_renewal(bundle):
        names += subject_alt_names(bundle.leaf.certificate)
    if signer is None or renewal_time(signer) <= now:
        signer = new_authority(now, issuance.ca_duration, key_source)
        authorities = (*authorities, signer)
    leaf = new_leaf(signer, names, now, issuance.leaf_duration, key_source)
    return Bundle(tuple(ca for ca in authorities if ca.expiry > now), leaf)
