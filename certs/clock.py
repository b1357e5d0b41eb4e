"""Compare the clock of this process with that of the API server, which checks certificates.

Nothing is issued while they differ: from a wrong clock, a CA would be replaced too early, and
certificates would not be valid for others.
"""

from certs.snapshot import Snapshot

MAX_SKEW = 300
"""Largest difference with which certificates are issued [s]: less than `BACKDATE`, so that they are
valid for the API server."""


def skew_of(snapshot: Snapshot, now: float) -> float | None:
    """Return by how much the own clock is ahead of the API server's; None: not known [s]."""
    return None if snapshot.server_time is None else now - snapshot.server_time


def skew_problem(skew: float | None) -> str | None:
    """Return why nothing may be issued with this difference of clocks; None where it may."""
    if skew is None or abs(skew) <= MAX_SKEW:
        return None
    direction = "ahead of" if skew > 0 else "behind"
    return (
        f"the clock of this process is {abs(skew) / 60:.0f} minutes {direction} that of the API"
        " server: no certificate is issued until they agree"
    )
