"""When certificates are made anew, and which."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from certs.authority import KeyPair, KeySource, general_name, names_of, new_authority, new_leaf
from certs.bundle import Bundle


@dataclass(frozen=True, slots=True)
class IssuancePolicy:
    """What is issued."""

    names: tuple[str, ...]
    """DNS names and IP addresses that the servers are reached by."""
    leaf_seconds: float
    """How long a leaf lasts [s]; at most a third of its CA."""
    authority_seconds: float
    """How long a CA lasts [s]."""


def renewal_reason(bundle: Bundle, names: Sequence[str], now: float) -> str | None:
    """Return why a bundle must not stay as it is, or None; once there is a reason, it stays.

    Args:
        bundle: What servers show and clients trust.
        names: What the servers are reached by.
        now: [s since 1970].
    """
    signer = bundle.signer
    if signer is None:
        return "the leaf is signed by no CA of the bundle"
    present = names_of(bundle.leaf.certificate)
    missing = [name for name in names if str(general_name(name).value) not in present]
    if missing:
        return f"the leaf lacks the names {', '.join(missing)}"
    for what, pair in (("CA", signer), ("leaf", bundle.leaf)):
        if due(pair) <= now:
            end = datetime.fromtimestamp(pair.expiry, UTC)
            return f"the {what} has begun its last third, and ends at {end:%Y-%m-%dT%H:%M:%SZ}"
    return None


def due(pair: KeyPair) -> float:
    """Return when the last third of a certificate's life begins [s since 1970]."""
    return pair.issued + (pair.expiry - pair.issued) * 2 / 3


def due_next(bundle: Bundle) -> float:
    """Return when the first of a bundle's certificates is to be made anew [s since 1970]."""
    return min(due(pair) for pair in (bundle.signer, bundle.leaf) if pair)


def renewed(bundle: Bundle | None, terms: IssuancePolicy, now: float, source: KeySource) -> Bundle:
    """Return a bundle with a new leaf, of the same CA while that one lasts.

    A CA that is followed by a new one stays trusted until it ends, since servers show their old
    leaf until they have the new one.

    A leaf that is not due passes its names on, since they may be those of a replica with other
    settings; if each replica removed the others' names, they would renew in turn for ever. Names
    that no replica wants end with the leaf.

    Args:
        bundle: What there is; None to begin anew.
        terms: What is issued.
        now: [s since 1970].
        source: Of keys and serial numbers.
    """
    authorities = bundle.authorities if bundle else ()
    signer = bundle.signer if bundle else None
    names = terms.names
    if bundle and signer and now < due_next(bundle):
        names += names_of(bundle.leaf.certificate)
    if signer is None or due(signer) <= now:
        signer = new_authority(now, terms.authority_seconds, source)
        authorities = (*authorities, signer)
    leaf = new_leaf(signer, names, now, terms.leaf_seconds, source)
    return Bundle(tuple(ca for ca in authorities if ca.expiry > now), leaf)
