"""Decide the next change of the CAs: a rotation in four phases, each resumable by any replica.

1. Announce: store the next CA beside the current one. Every bundle then gets both.
2. Wait: until both have been in every bundle for so long that every client has seen them.
3. Switch: the next CA becomes the current one, and every leaf is signed again.
4. Retire: when every server has loaded its leaf, remove the previous CA from the bundles.

Only what is stored decides, and for how long it has been in effect: `effective` below, measured by
each replica with its monotonic clock. Therefore neither a crash nor a step of the wall clock
shortens a wait.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial

from cryptography import x509

from certs.authorities import Authorities
from certs.authority import KeySource, is_valid, new_authority, renewal_time
from certs.leaf import Server, renewal_reason
from certs.recovery import not_expired, recover, unusable_leaf
from certs.snapshot import Snapshot
from certs.transition import Action, Transition


@dataclass(frozen=True, slots=True)
class IssuancePolicy:
    """The servers, and durations."""

    servers: tuple[Server, ...]
    leaf_duration: float
    """Validity of a leaf [s]; at most a third of its CA's."""
    ca_duration: float
    """Validity of a CA [s]."""
    propagation: float
    """Time after which every API server has seen a bundle, and every server has loaded its leaf
    [s]; at most a third of a leaf's validity."""


class Phase(StrEnum):
    """Where a rotation stands."""

    STABLE = "stable"
    ANNOUNCE = "announce"
    WAIT = "wait"
    SWITCH = "switch"
    RETIRE = "retire"


def required_wait(snapshot: Snapshot, policy: IssuancePolicy) -> float:
    """Return for how long the CAs must be in effect before the next change of a rotation [s].

    It is short while no CA can sign and a leaf is missing: its server uses the last one, but pods
    that start have none.
    """
    authorities = snapshot.authorities.value
    is_short = authorities and authorities.current is None and snapshot.lacks_leaf
    return policy.propagation / 60 if is_short else policy.propagation


def is_in_effect(snapshot: Snapshot, policy: IssuancePolicy, now: float) -> bool:
    """Return whether every leaf and every webhook configuration agrees with the CAs.

    While no CA can sign, leaves may be missing.
    """
    authorities = snapshot.authorities.value
    if authorities is None:
        return False
    bundle = authorities.bundle
    for server in policy.servers:
        leaf = snapshot.leaves[server].value
        if leaf is None and authorities.current is None:
            continue
        if leaf is None or leaf.trusted != bundle:
            return False
        if renewal_reason(leaf, server, authorities, policy.leaf_duration, now):
            return False
    return all(each.has_bundle(bundle) for each in snapshot.configurations.values())


def phase_of(authorities: Authorities, *, in_effect: bool) -> Phase:
    """Return the phase of a rotation.

    Args:
        authorities: All CAs.
        in_effect: Whether all leaves and webhook configurations agree with them.
    """
    if authorities.next:
        return Phase.WAIT if in_effect else Phase.ANNOUNCE
    if authorities.previous:
        return Phase.RETIRE if in_effect else Phase.SWITCH
    return Phase.STABLE


def next_transition(
    snapshot: Snapshot,
    policy: IssuancePolicy,
    now: float,
    effective: float,
    key_source: KeySource,
) -> Transition | None:
    """Return the next change of the CAs; None where there is none now.

    Args:
        snapshot: The present objects.
        policy: Servers and durations.
        now: Wall clock [s since 1970].
        effective: For how long this process has seen the CAs in effect everywhere [s].
        key_source: Source of keys and serial numbers.
    """
    new = partial(new_authority, now, policy.ca_duration, key_source)
    authorities = snapshot.authorities.value
    if authorities is None:
        return recover(snapshot, now, new)
    if reason := _emergency(authorities, snapshot, now):
        following = authorities.next
        is_usable = following is not None and is_valid(following.certificate, now)
        current = following if is_usable and following else new()
        trusted = [each for each in authorities.certificates if each != current.certificate]
        issued = Authorities(current, previous=not_expired(trusted, now))
        return Transition(Action.ISSUE, issued, reason)
    if effective >= required_wait(snapshot, policy) and (settled := _after_wait(authorities, now)):
        return settled
    if reason := _rotation_reason(authorities, snapshot, now):
        return Transition(Action.ANNOUNCE, replace(authorities, next=new()), reason)
    return None


def next_due(authorities: Authorities) -> float:
    """Return when the CA that signs, or will sign, is replaced [s since 1970]."""
    pair = authorities.next or authorities.current
    if pair is None:
        raise ValueError("there is no CA")
    return renewal_time(pair.certificate)


def _after_wait(authorities: Authorities, now: float) -> Transition | None:
    """Return the change that follows a wait; None where there is no rotation to continue."""
    following = authorities.next
    if following and not _is_due(following.certificate, now):
        trusted = [*authorities.previous]
        if authorities.current:
            trusted.append(authorities.current.certificate)
        switched = Authorities(following, previous=not_expired(trusted, now))
        reason = "every API server has had time to see the announced CA"
        return Transition(Action.SWITCH, switched, reason)
    if authorities.previous and not following:
        reason = "every server has had time to load its new certificate"
        return Transition(Action.RETIRE, replace(authorities, previous=()), reason)
    return None


def _rotation_reason(authorities: Authorities, snapshot: Snapshot, now: float) -> str | None:
    """Return why a CA must be announced; None where none must, or where it is already."""
    if authorities.next:
        is_due = _is_due(authorities.next.certificate, now)
        return "the announced CA is in its last third, or not valid yet" if is_due else None
    if authorities.previous:
        return None
    if snapshot.is_rotation_requested:
        return "an annotation requests a rotation"
    if authorities.current and _is_due(authorities.current.certificate, now):
        return "the current CA is in its last third"
    return None


def _emergency(authorities: Authorities, snapshot: Snapshot, now: float) -> str | None:
    """Return why a leaf must be signed by a CA that clients may not have seen; None: no need."""
    current = authorities.current
    if current:
        if is_valid(current.certificate, now):
            return None
        return "the current CA has expired, or is not valid yet: did the clock change?"
    return unusable_leaf(snapshot, authorities.certificates, now)


def _is_due(certificate: x509.Certificate, now: float) -> bool:
    return not is_valid(certificate, now) or renewal_time(certificate) <= now
